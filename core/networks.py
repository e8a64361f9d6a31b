"""Addresses of clients, behind proxies that are trusted to tell them."""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@lru_cache(maxsize=8)
def networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """The networks that addresses (`10.0.0.7`) and networks (`10.0.0.0/8`) spell; raises `ValueError`."""
    return tuple(ip_network(text) for text in texts)


def client_address(meta: Mapping[str, Any], *, trusted: tuple[str, ...]) -> str:
    """Whom a request comes from: the peer, or, where that is a `trusted` proxy, whom its `X-Forwarded-For` names.

    That header is read from its end, where each proxy adds its own peer: the first that is no trusted proxy is the client, and
    whatever stands before it is the client's own word. An entry that is no address ends the search at the proxy behind it.
    """
    known, found = networks(trusted), str(meta.get("REMOTE_ADDR", ""))
    for entry in reversed(str(meta.get("HTTP_X_FORWARDED_FOR", "")).split(",")):
        peer = _address(found)
        before = _address(entry)
        if peer is None or before is None or not any(peer in network for network in known):
            break
        found = str(before)
    return found


def one_client(address: str) -> str:
    """What counts as one client's: the address, of IPv6 its network, in which a single host has billions."""
    found = _address(address)
    return str(ip_network((found, 64), strict=False)) if isinstance(found, IPv6Address) else address


def _address(text: str) -> Address | None:
    """The address, without a port, one of IPv4 in its own form."""
    bare = text.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        found = ip_address(bare)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
