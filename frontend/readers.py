"""Who reads a websocket, what they may see, and whether both still hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import IntegerField, Value
from django.http import HttpRequest, parse_cookie
from django.http.request import split_domain_port, validate_host
from django.utils import timezone

from core.conf import conf
from fleet import keys
from fleet.principals import Principal
from fleet.selectors import agents_visible_to

from . import tickets
from .close_codes import CloseCode, Refused

#: SQLite joins at most 500 queries into one.
PRINCIPALS_PER_QUERY = 200

Names = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Who reads, and by what: a browser's session or a ticket. `fingerprint` changes with the user's password."""

    principal: Principal
    fingerprint: str
    session_key: str | None = None


def reader_of(scope: Mapping[str, Any]) -> Reader:
    """Who opened this websocket; raises `Refused`."""
    ticket = query_of(scope).get("ticket")
    if ticket is None:
        return _of_session(dict(scope["headers"]))
    principal = tickets.redeem(ticket[-1])
    if principal is None:
        raise Refused(CloseCode.CREDENTIALS)
    return Reader(principal=principal, fingerprint=principal.user.get_session_auth_hash())


def query_of(scope: Mapping[str, Any]) -> dict[str, list[str]]:
    """The query string's parameters."""
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _of_session(headers: Mapping[bytes, bytes]) -> Reader:
    session_key = parse_cookie(headers.get(b"cookie", b"").decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    if not session_key:
        raise Refused(CloseCode.CREDENTIALS)
    if not may_use_session(origin=headers.get(b"origin", b"").decode("latin-1"), host=headers.get(b"host", b"").decode("latin-1")):
        raise Refused(CloseCode.RIGHTS)
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    if not isinstance(user, User):
        raise Refused(CloseCode.CREDENTIALS)
    return Reader(principal=Principal.of_user(user), fingerprint=user.get_session_auth_hash(), session_key=session_key)


def may_use_session(*, origin: str, host: str) -> bool:
    """Whether a page of `origin` may open a socket as the browser's signed-in user; `host` is what the browser asked."""
    if conf.ws_origins:
        return origin.lower() in {allowed.lower().rstrip("/") for allowed in conf.ws_origins}
    domain, _ = split_domain_port(host.lower())
    known = bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)
    parts = urlsplit(origin)
    return known and parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()


def names_visible_to(principals: Sequence[Principal]) -> dict[Principal, Names]:
    """The names of the agents each of them may read, by one query for 200 principals."""
    found: dict[Principal, set[str]] = {principal: set() for principal in principals}
    for start in range(0, len(principals), PRINCIPALS_PER_QUERY):
        batch = principals[start : start + PRINCIPALS_PER_QUERY]
        for index, name in _union(batch):
            found[batch[index]].add(name)
    return {principal: frozenset(names) for principal, names in found.items()}


def _union(principals: Sequence[Principal]) -> Iterable[tuple[int, str]]:
    parts = [
        agents_visible_to(principal).order_by().annotate(reader=Value(index, IntegerField())).values_list("reader", "name")
        for index, principal in enumerate(principals)
    ]
    return parts[0].union(*parts[1:], all=True)


def still_reading(readers: Iterable[Reader]) -> dict[Reader, Names | None]:
    """What each may see now; None for those whose credential is dead: signed out, key revoked, account closed."""
    asked = list(readers)
    principals = alive(asked)
    names = names_visible_to(list(dict.fromkeys(principals.values())))
    return {reader: names[principals[reader]] if reader in principals else None for reader in asked}


def alive(readers: Iterable[Reader]) -> dict[Reader, Principal]:
    """Those whose credentials still hold, with whom they speak for now."""
    asked = list(readers)
    users = User.objects.in_bulk([reader.principal.user.pk for reader in asked])
    usable = set(keys.usable_keys().filter(pk__in=[r.principal.key.pk for r in asked if r.principal.key]).values_list("pk", flat=True))
    signed_in = _live_sessions([reader.session_key for reader in asked if reader.session_key])
    found: dict[Reader, Principal] = {}
    for reader in asked:
        user, key = users.get(reader.principal.user.pk), reader.principal.key
        known = user is not None and user.is_active and user.get_session_auth_hash() == reader.fingerprint
        if user and known and (key is None or key.pk in usable) and (reader.session_key is None or reader.session_key in signed_in):
            # As the user is now: who is no longer a superuser sees less.
            found[reader] = Principal.of_key(key) if key else Principal.of_user(user)
    return found


def _live_sessions(session_keys: list[str]) -> set[str]:
    live = Session.objects.filter(session_key__in=session_keys, expire_date__gt=timezone.now())
    return set(live.values_list("session_key", flat=True))
