"""Tickets for websockets: a page that can't send a header or a cookie shows one in the URL, once, within half a minute."""

import hashlib
import json
import secrets

from django.contrib.auth.models import User

from core.redis import client
from fleet import keys
from fleet.principals import Principal

TICKET_SECONDS = 30


def issue(*, principal: Principal) -> str:
    """A new ticket that stands for `principal`; Redis keeps its hash alone."""
    ticket = secrets.token_urlsafe(32)
    stands_for = {"user": principal.user.pk, "key": principal.key.pk if principal.key else None}
    client().set(_key(ticket), json.dumps(stands_for), ex=TICKET_SECONDS)
    return ticket


def redeem(ticket: str) -> Principal | None:
    """Whom the ticket stands for, if it still may; it works no second time, whatever the outcome."""
    kept = client().getdel(_key(ticket))
    return None if kept is None else _principal(**json.loads(kept))


def _principal(*, user: int, key: int | None) -> Principal | None:
    if key is None:
        person = User.objects.filter(pk=user, is_active=True).first()
        return Principal.of_user(person) if person else None
    row = keys.usable_keys().filter(pk=key).first()
    return Principal.of_key(row) if row else None


def _key(ticket: str) -> str:
    return f"trinity:ws-ticket:{hashlib.sha256(ticket.encode('utf-8', 'replace')).hexdigest()}"
