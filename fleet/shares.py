"""Shares: an agent's owner lets other people use it, and takes that back."""

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from core.api.parsers import text_problem
from core.errors import InvalidFields

from . import access, audit, locks
from .errors import ShareNotFound
from .events import tell_rights_changed
from .models import Agent, Share
from .principals import Principal


def shares_of(agent: Agent) -> QuerySet[Share]:
    """With whom the agent is shared, newest first."""
    return Share.objects.filter(agent=agent).select_related("user")


def share_agent(*, principal: Principal, agent: Agent, username: str) -> tuple[Share, bool]:
    """The share, and whether it is new: sharing twice changes nothing.

    One transaction with an audit entry. Raises what `access.require` does, and `InvalidFields` where the name is no active
    user's, or the owner's.
    """
    access.require(principal, access.Verb.OWN, agent)
    with transaction.atomic():
        held = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        share, is_new = Share.objects.get_or_create(agent=held, user=_guest(held, username))
        if is_new:
            share.refresh_from_db(fields=["created_at"])
            audit.record(principal, "shared", agent=held, after=username)
            tell_rights_changed(held.name)
    return share, is_new


def withdraw_share(*, principal: Principal, agent: Agent, username: str) -> None:
    """The user sees the agent no more; what they have in line fails when its turn comes, what runs goes on.

    Raises what `access.require` does, and `ShareNotFound` where it isn't shared with them.
    """
    access.require(principal, access.Verb.OWN, agent)
    with transaction.atomic():
        held = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        # What can't be a name isn't asked for: PostgreSQL refuses text with a NUL.
        if text_problem(username) or not Share.objects.filter(agent=held, user__username=username).delete()[0]:
            raise ShareNotFound
        audit.record(principal, "unshared", agent=held, before=username)
        tell_rights_changed(held.name)


def _guest(agent: Agent, username: str) -> User:
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        raise InvalidFields.of("username", "username must be the user name of an active user")
    if user.pk == agent.owner_id:
        raise InvalidFields.of("username", "username must not be the owner's")
    return user
