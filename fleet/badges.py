"""Badges: an agent's load as a picture for pages that know no login, by a key that its owner may renew or take back."""

import secrets

from django.db import transaction
from django.utils import timezone

from . import access, audit, locks
from .models import Agent, Badge
from .principals import Principal

_KEY_BYTES = 18


def badge_of(*, principal: Principal, name: str) -> Badge | None:
    """The agent's badge, None where it has none. Raises what `access.agent_for` does."""
    agent = access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    return Badge.objects.filter(agent=agent).select_related("agent").first()


def renew_badge(*, principal: Principal, name: str) -> Badge:
    """The agent's badge under a new key; the former leads nowhere from now on. Raises what `access.agent_for` does."""
    agent = access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    with transaction.atomic():
        held = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        values = {"key": secrets.token_urlsafe(_KEY_BYTES), "made_by": principal.user, "made_at": timezone.now()}
        badge, _ = Badge.objects.update_or_create(agent=held, defaults=values)
        audit.record(principal, "badge_made", agent=held)
    return badge


def revoke_badge(*, principal: Principal, name: str) -> None:
    """The agent has no badge from now on, if it had one. Raises what `access.agent_for` does."""
    agent = access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    with transaction.atomic():
        held = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        deleted, _ = Badge.objects.filter(agent=held).delete()
        if deleted:
            audit.record(principal, "badge_revoked", agent=held)


def agent_shown_by(key: str) -> Agent | None:
    """The living agent of a badge, by one query; None for a key that leads nowhere."""
    agents = Agent.objects.filter(badge__key=key, deleted_at=None).only("name", "max_parallel_tasks", "paused")
    return agents.first()
