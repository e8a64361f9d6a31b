"""Public links: made by an agent's owner, shown once, looked up by their digest."""

import secrets
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from . import access, audit, keys, locks
from .errors import PublicLinkNotFound
from .models import Agent, PublicLink
from .principals import Principal

MARK = "link_"
_USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class NewLink:
    """A link just made: its row, and its token, which nobody will see again."""

    row: PublicLink
    token: str


def links_of(agent: Agent) -> QuerySet[PublicLink]:
    """The agent's links that work, newest first."""
    return PublicLink.objects.filter(agent=agent, revoked_at=None).select_related("created_by")


def create_link(*, principal: Principal, agent: Agent, name: str) -> NewLink:
    """A new link to the agent, with an audit entry. Raises what `access.require` does, `AgentNotFound`."""
    access.require(principal, access.Verb.OWN, agent)
    token = MARK + secrets.token_urlsafe(32)
    with transaction.atomic():
        held = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        row = PublicLink.objects.create(
            agent=held, name=name, prefix=keys.prefix_of(token), digest=keys.digest_of(token), created_by=principal.user
        )
        audit.record(principal, "public_link_made", agent=held, after={"id": row.pk, "name": name})
    row.refresh_from_db(fields=["created_at"])
    return NewLink(row=row, token=token)


def revoke_link(*, principal: Principal, agent: Agent, link_id: int) -> None:
    """The link leads nowhere from now on; what came by it and has not begun fails when its turn comes.

    Raises what `access.require` does, and `PublicLinkNotFound` where the agent has no such link, or none any more.
    """
    access.require(principal, access.Verb.OWN, agent)
    with transaction.atomic():
        held = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        row = links_of(held).filter(pk=link_id).first()
        if row is None:
            raise PublicLinkNotFound
        PublicLink.objects.filter(pk=row.pk).update(revoked_at=timezone.now())
        audit.record(principal, "public_link_revoked", agent=held, before={"id": row.pk, "name": row.name})


def usable_link(token: str) -> PublicLink | None:
    """The link of a token, and that it is used now is noted; None where it is unknown, revoked, or its agent gone."""
    found = PublicLink.objects.filter(digest=keys.digest_of(token), revoked_at=None, agent__deleted_at=None).first()
    if found is not None:
        _note_use(found)
    return found


def _note_use(link: PublicLink) -> None:
    """At most once a minute: a write for each request would cost more than the request."""
    stale = timezone.now() - _USE_NOTED_EVERY
    if link.last_used_at is None or link.last_used_at < stale:
        PublicLink.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=stale), pk=link.pk).update(last_used_at=Now())
