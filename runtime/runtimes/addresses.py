"""Which hosts an agent's URL may lead to."""

import asyncio
import ipaddress
import socket

import httpx


class AddressRefused(Exception):
    """The agent's address is private, and private addresses are not allowed"""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def is_public(address: str) -> bool:
    """Whether `address` is one of the open Internet."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    return mapped.is_global and not mapped.is_multicast


async def pin(request: httpx.Request) -> None:
    """Bind `request` to a public address of its host; raises `AddressRefused` where it has another one too.

    The address that was looked at is the one that is connected to: a name that is answered differently the second time
    gains nothing. Name errors are `httpx.ConnectError`, as they are without a pin.
    """
    host, port = request.url.host, request.url.port or (443 if request.url.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpx.ConnectError(str(error), request=request) from error
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(is_public(address) for address in addresses):
        raise AddressRefused
    request.extensions = {**request.extensions, "sni_hostname": host}
    request.url = request.url.copy_with(host=addresses[0])
