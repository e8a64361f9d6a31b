"""Who may do what: the one module that says, for REST, MCP, the admin and sockets.

| | their own agent | shared with them | others |
|---|---|---|---|
| person | every verb | read, submit | none |
| superuser | every verb | every verb | every verb |
| agent key | read, submit: its own agent and all that its owner reaches | | none |
| system key | read, submit | read, submit | read, submit |

A public link is nobody's credential: who has it may send its one agent messages, for as long as neither is gone.
"""

import re
from enum import StrEnum

from django.db.models import Exists, OuterRef, Q, QuerySet

from .errors import AccessDenied, AgentNotFound, CapacityOwnerRequired, OwnerRequired, PersonRequired
from .models import Agent, PublicLink, Share
from .principals import PUBLIC, Principal, PrincipalKind, Submitter

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class Verb(StrEnum):
    """What is to be done to an agent."""

    READ = "read"
    SUBMIT = "submit"
    #: Its capacity settings.
    CHANGE = "change"
    #: Anything else that is its owner's.
    OWN = "own"


_PERSONAL = {Verb.CHANGE: CapacityOwnerRequired, Verb.OWN: OwnerRequired}


def may(principal: Principal, verb: str, agent: Agent) -> bool:
    """Whether `principal` may. One query where the agent is somebody else's and didn't come from `agent_for`."""
    if Verb(verb) in _PERSONAL:
        return principal.is_person and _owns(principal, agent)
    return principal.kind is PrincipalKind.SYSTEM or principal.agent_id == agent.pk or _owns(principal, agent) or _shares(principal, agent)


def require(principal: Principal, verb: str, agent: Agent) -> None:
    """Raise `PersonRequired`, `AccessDenied` or `OwnerRequired`, the first that applies, unless `principal` may."""
    require_person_for(principal, verb)
    if may(principal, verb, agent):
        return
    raise _PERSONAL[Verb(verb)]() if may(principal, Verb.READ, agent) and Verb(verb) in _PERSONAL else AccessDenied()


def require_person_for(principal: Principal, verb: str) -> None:
    """Raise `PersonRequired` where `verb` needs a person; asked before the agent is looked up, so that keys learn nothing."""
    if Verb(verb) in _PERSONAL:
        require_person(principal)


def require_person(principal: Principal) -> None:
    """Raise `PersonRequired` unless a person asks."""
    if not principal.is_person:
        raise PersonRequired


def require_system(principal: Principal) -> None:
    """Raise `AccessDenied` unless the system asks: internal endpoints are for its keys alone."""
    if principal.kind is not PrincipalKind.SYSTEM:
        raise AccessDenied


def require_superuser(principal: Principal) -> None:
    """Raise `PersonRequired` or `AccessDenied` unless a superuser asks, in person."""
    require_person(principal)
    if not principal.is_superuser:
        raise AccessDenied


def agent_for(*, principal: Principal, name: str, verb: str, queryset: QuerySet[Agent] | None = None) -> Agent:
    """The living agent `name`, by one query, once `principal` may `verb` it.

    `queryset` brings a caller's own annotations or lock. Raises `PersonRequired`, then `AgentNotFound`, then `AccessDenied`,
    then `OwnerRequired`.
    """
    require_person_for(principal, verb)
    agent = _named(name, with_shares(Agent.objects.all() if queryset is None else queryset, principal))
    if agent is None:
        raise AgentNotFound
    require(principal, verb, agent)
    return agent


def with_shares(queryset: QuerySet[Agent], principal: Principal) -> QuerySet[Agent]:
    """`queryset`, each row knowing whether it is shared with `principal`'s user, so that `may` needn't ask."""
    shared = Exists(Share.objects.filter(agent=OuterRef("pk"), user=principal.user.pk))
    return queryset.annotate(**{_share_mark(principal): shared})


def may_cancel(principal: Principal, agent: Agent, *, submitted_by_id: int | None, submitted_key_id: int | None) -> bool:
    """Whether `principal` may cancel an execution: its agent's owner, or who submitted it.

    A person's executions are those of every credential of theirs, a key's only its own.
    """
    if may(principal, Verb.OWN, agent):
        return True
    if principal.is_person:
        return submitted_by_id == principal.user.pk
    return principal.key is not None and submitted_key_id == principal.key.pk


def cancellable_by(principal: Principal) -> Q:
    """The executions that `may_cancel` names, of agents that `principal` may see: the same rule, for many."""
    if principal.is_superuser:
        return Q()
    if principal.is_person:
        return Q(agent__owner=principal.user.pk) | Q(submitted_by=principal.user.pk)
    return Q(submitted_key=principal.key.pk) if principal.key is not None else Q(pk=None)


def may_still_submit(submitter: Submitter, agent: Agent) -> bool:
    """Whether who submitted a task to `agent` could do so now.

    A key or a public link that was revoked since has lost it, a key that merely expired has not. No query where the agent is
    their own.
    """
    if submitter.kind == PUBLIC:
        live = PublicLink.objects.filter(agent=agent, revoked_at=None)
        return submitter.link_id is not None and live.filter(pk=submitter.link_id).exists()
    if submitter.kind not in {"user", *PrincipalKind} or (submitter.user_id is None and not submitter.name):
        return True  # a source with rules of its own, or none named
    if submitter.user_id is None or not submitter.active or (submitter.kind != "user" and submitter.key_id is None):
        return False
    if agent.owner_id == submitter.user_id:
        return True
    principal = submitter.principal()
    if principal is None or (principal.kind is PrincipalKind.SYSTEM and not principal.user.is_superuser):
        return False
    return may(principal, Verb.SUBMIT, agent)


def _named(name: str, queryset: QuerySet[Agent]) -> Agent | None:
    # What can't be a name isn't asked for: PostgreSQL refuses text with a NUL.
    return queryset.filter(name=name, deleted_at=None).first() if NAME.fullmatch(name) else None


def _owns(principal: Principal, agent: Agent) -> bool:
    # An agent key reaches what its owner reaches, though it may do less there.
    return principal.user.is_superuser or agent.owner_id == principal.user.pk


def _shares(principal: Principal, agent: Agent) -> bool:
    known = getattr(agent, _share_mark(principal), None)
    return Share.objects.filter(agent=agent, user=principal.user).exists() if known is None else known


def _share_mark(principal: Principal) -> str:
    return f"shared_with_{principal.user.pk}"
