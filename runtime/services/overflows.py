"""What becomes of a task that finds no slot, beside `capacity.manager.Reject`."""

from backlog import services as backlog
from backlog.drafts import Draft, Queued
from capacity.errors import AgentPaused, FleetAtCapacity
from capacity.gate import Gate
from fleet.models import Agent, OnFull


class QueuePersistent:
    """Overflow policy: wait in the durable line, up to the agent's depth, unless the fleet is what is full and its setting refuses."""

    def __init__(self, *, gate: Gate) -> None:
        self.gate = gate

    def __call__(self, *, agent: Agent, draft: Draft, full: Exception) -> Queued:
        """Put the draft in line, or raise `BacklogFull` or `FleetAtCapacity`."""
        if isinstance(full, FleetAtCapacity) and self.gate.fleet_on_full == OnFull.REJECT:
            raise full
        return backlog.enqueue(agent=agent, draft=draft, limit=self.gate.limit)


class QueueAttended(QueuePersistent):
    """Overflow policy of conversations: wait in line while the caller is there, a few of an agent at once; not for the end of a pause."""

    def __call__(self, *, agent: Agent, draft: Draft, full: Exception) -> Queued:
        """Put the draft in line, or raise `AgentPaused`, `QueueFull`, or as `QueuePersistent`."""
        if isinstance(full, AgentPaused):
            raise full
        return super().__call__(agent=agent, draft=draft, full=full)
