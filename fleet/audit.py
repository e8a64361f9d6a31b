"""Who did what to an agent or the fleet: rows that are only ever added."""

from typing import Any

from .models import Agent, AuditEntry
from .principals import Principal


def entry(principal: Principal, action: str, before: Any, after: Any, *, agent: Agent | None = None) -> AuditEntry:
    """The entry, not saved."""
    return AuditEntry(
        actor=principal.user, actor_name=principal.user.get_username(), agent=agent, action=action, before=before, after=after
    )


def record(principal: Principal, action: str, *, agent: Agent | None = None, before: Any = None, after: Any = None) -> None:
    """Add the entry."""
    entry(principal, action, before, after, agent=agent).save()
