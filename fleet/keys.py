"""API keys: made, shown once, looked up by their digest."""

import hashlib
import secrets
from datetime import timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from .models import Agent, ApiKey, KeyScope
from .principals import Principal

MARK = "trinity_"
_VISIBLE_CHARACTERS = 16
_USE_NOTED_EVERY = timedelta(minutes=1)


def new_key() -> str:
    """256 random bits behind the mark."""
    return MARK + secrets.token_urlsafe(32)


def digest_of(key: str) -> str:
    """What is stored of a key: of this many random bits a plain hash is as good as a slow one."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def prefix_of(key: str) -> str:
    """The part that stays visible."""
    return key[:_VISIBLE_CHARACTERS]


def keys_of_agent(agent: Agent) -> QuerySet[ApiKey]:
    """All keys that were ever made for the agent, newest first."""
    return ApiKey.objects.select_related("owner", "agent").defer("agent__runtime").filter(agent=agent)


def keys_managed_by(principal: Principal) -> QuerySet[ApiKey]:
    """The person's own user keys, newest first, and of a superuser every system key."""
    own = Q(scope=KeyScope.USER, owner=principal.user.pk)
    managed = own | Q(scope=KeyScope.SYSTEM) if principal.is_superuser else own
    return ApiKey.objects.select_related("owner", "agent").defer("agent__runtime").filter(managed)


def usable_keys() -> QuerySet[ApiKey]:
    """The keys that work now, with their owners and agents: not revoked, not expired, their people and agents still there.

    One of scope system works for as long as its owner may have one.
    """
    return ApiKey.objects.select_related("owner", "agent").filter(
        Q(expires_at=None) | Q(expires_at__gt=Now()),
        Q(agent=None) | Q(agent__deleted_at=None),
        ~Q(scope=KeyScope.SYSTEM) | Q(owner__is_superuser=True),
        revoked_at=None,
        owner__is_active=True,
    )


def usable_key(key: str) -> ApiKey | None:
    """The row of a key that works now; None if it is unknown, revoked, expired or its people are gone."""
    digest = digest_of(key)
    row = usable_keys().filter(digest=digest).first()
    return row if row is not None and constant_time_compare(row.digest, digest) else None


def note_use(key: ApiKey) -> None:
    """Move `last_used_at`, at most once a minute: a write for each request would cost more than the request."""
    stale = timezone.now() - _USE_NOTED_EVERY
    if key.last_used_at is None or key.last_used_at < stale:
        ApiKey.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=stale), pk=key.pk).update(last_used_at=Now())
