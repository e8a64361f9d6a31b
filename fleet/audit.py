"""Who did what to an agent or the fleet: rows that are only ever added."""

from typing import Any

from .models import Agent, AuditEntry
from .principals import Principal

#: Who ends what was set for a time.
SYSTEM = "system"


def entry(principal: Principal | None, action: str, before: Any, after: Any, *, agent: Agent | None = None) -> AuditEntry:
    """The entry, not saved; without a principal it is the system's own act."""
    actor = None if principal is None else principal.user
    name = SYSTEM if actor is None else actor.get_username()
    return AuditEntry(actor=actor, actor_name=name, agent=agent, action=action, before=before, after=after)


def record(principal: Principal | None, action: str, *, agent: Agent | None = None, before: Any = None, after: Any = None) -> None:
    """Add the entry."""
    entry(principal, action, before, after, agent=agent).save()
