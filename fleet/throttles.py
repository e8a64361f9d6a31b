"""How often: logins (`TRINITY_LOGIN_RATE` per address and user name, for the API's tokens and the login page) and messages by
public links (`TRINITY_PUBLIC_RATE` per address)."""

import hashlib

from django.core.cache import cache
from django.http import HttpRequest
from rest_framework.request import Request

from core.conf import conf
from core.errors import Throttled
from core.networks import client_address, one_client

_PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def note_login(request: Request | HttpRequest, username: str) -> None:
    """Count one try; raise `Throttled` where it is one too many.

    Counted before the password is looked at, and by one command: tries sent all at once are counted one by one.
    """
    # Hashed: a name may be of any length and hold anything.
    told = hashlib.sha256(f"{_client(request)}\n{username.casefold()}".encode("utf-8", "replace")).hexdigest()
    _note(f"login:{told}", rate(conf.login_rate))


def note_public(request: Request | HttpRequest) -> None:
    """Count one message by a public link; raise `Throttled` where it is one too many for its client."""
    _note(f"public:{_client(request)}", rate(conf.public_rate))


def _note(key: str, allowed_in: tuple[int, int]) -> None:
    allowed, seconds = allowed_in
    cache.add(key, 0, timeout=seconds)
    if _counted(key, seconds) > allowed:
        raise Throttled(cache.ttl(key) or 1)  # type: ignore[attr-defined]  # only django-redis has it


def rate(text: str) -> tuple[int, int]:
    """`(times, seconds)` of a rate such as `10/min`."""
    times, _, period = text.partition("/")
    return int(times), _PERIODS[period.strip()[0].lower()]


def _counted(key: str, seconds: int) -> int:
    try:
        return cache.incr(key)
    except ValueError:  # it ended between the two commands
        cache.set(key, 1, timeout=seconds)
        return 1


def _client(request: Request | HttpRequest) -> str:
    return one_client(client_address(request.META, trusted=conf.trusted_proxies))
