"""How often a login may be tried: `TRINITY_LOGIN_RATE` per address and user name, for the API's tokens and the login page."""

import hashlib

from django.core.cache import cache
from django.http import HttpRequest
from rest_framework.request import Request

from core.conf import conf
from core.errors import Throttled

_PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def note_login(request: Request | HttpRequest, username: str) -> None:
    """Count one try; raise `Throttled` where it is one too many.

    Counted before the password is looked at, and by one command: tries sent all at once are counted one by one.
    """
    allowed, seconds = rate(conf.login_rate)
    key = _key(request.META.get("REMOTE_ADDR", ""), username)
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


def _key(address: str, username: str) -> str:
    # Hashed: a name may be of any length and hold anything.
    return "login:" + hashlib.sha256(f"{address}\n{username.casefold()}".encode("utf-8", "replace")).hexdigest()
