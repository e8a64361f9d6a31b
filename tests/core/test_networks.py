"""Whom a request comes from, with proxies in between."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from core.conf import environment
from core.networks import client_address, networks, one_client

PROXIES = ("10.0.0.0/8", "fd00::/8", "192.0.2.7")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("10.1.2.3", None, "10.1.2.3"),
        ("10.1.2.3", "198.51.100.1", "198.51.100.1"),
        ("192.0.2.7", "198.51.100.1:4711", "198.51.100.1"),
        ("10.1.2.3", "1.1.1.1, 198.51.100.1, 10.9.9.9", "198.51.100.1"),
        ("10.1.2.3", "1.1.1.1,198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "10.4.4.4, 10.9.9.9", "10.4.4.4"),
        ("10.1.2.3", "unknown", "10.1.2.3"),
        ("10.1.2.3", "198.51.100.1, unknown, 10.9.9.9", "10.9.9.9"),
        ("10.1.2.3", "", "10.1.2.3"),
        ("10.1.2.3", ",,", "10.1.2.3"),
        ("fd00::1", "[2001:db8::5]:443", "2001:db8::5"),
        ("::ffff:10.1.2.3", "2001:db8::5", "2001:db8::5"),
        ("10.1.2.3", "::ffff:198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "[", "10.1.2.3"),
        ("", "198.51.100.1", ""),
        ("not an address", "198.51.100.1", "not an address"),
    ],
)
def test_only_trusted_proxies_say_who_asks(peer: str, forwarded: str | None, client: str) -> None:
    meta = {"REMOTE_ADDR": peer} | ({} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded})
    assert client_address(meta, trusted=PROXIES) == client


def test_without_trusted_proxies_the_peer_it_is() -> None:
    assert client_address({"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "198.51.100.1"}, trusted=()) == "127.0.0.1"


def test_a_host_with_many_addresses_is_one_client() -> None:
    assert one_client("2001:db8:1:2:3:4:5:6") == one_client("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert [one_client(address) for address in ("198.51.100.1", "", "?")] == ["198.51.100.1", "", "?"]


def test_what_is_no_network_is_refused_at_the_start() -> None:
    assert [str(network) for network in networks(PROXIES)] == ["10.0.0.0/8", "fd00::/8", "192.0.2.7/32"]
    assert environment({"TRINITY_TRUSTED_PROXIES": "10.0.0.0/8, ::1"}) == {"TRINITY_TRUSTED_PROXIES": ("10.0.0.0/8", "::1")}
    for wrong in ("localhost", "10.0.0.1/8", "*", "10.0.0.0/8,300.1.1.1"):
        with pytest.raises(ImproperlyConfigured, match=r"TRINITY_TRUSTED_PROXIES: .* is not a list of addresses and networks"):
            environment({"TRINITY_TRUSTED_PROXIES": wrong})
