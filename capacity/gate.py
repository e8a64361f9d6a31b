"""What an admission has to know of an agent, read in one query at the moment it is needed."""

import uuid
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet, Subquery
from django.db.models.functions import JSONObject

from backlog import selectors as backlog
from backlog.models import Execution
from fleet.models import Agent, FleetSettings

#: The fleet if its row were missing: never "unlimited".
_NO_FLEET = {"ceiling": 1, "limit": None, "on_full": "queue", "paused": True}


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first startable row of a line."""

    id: uuid.UUID
    timeout_seconds: int
    preview: str


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The limits in force and the head of the line.

    `limit` is the effective one, min(stored, ceiling), never below 0; `fleet_limit` None means no cap.
    """

    agent: Agent
    limit: int
    ceiling: int
    fleet_limit: int | None
    fleet_on_full: str
    paused: bool
    head: Head | None


def gated(agents: QuerySet[Agent]) -> QuerySet[Agent]:
    """The agents with all that `gate_of` reads, in the same query."""
    fleet = FleetSettings.objects.filter(pk=1).values(
        read=JSONObject(ceiling="max_parallel_tasks_ceiling", limit="max_concurrent_tasks", on_full="on_full", paused="paused")
    )
    # One subquery for all four: composing the SQL is most of what this costs.
    return backlog.with_head(agents).annotate(fleet_read=Subquery(fleet))


def gate_of(agent: Agent) -> Gate:
    """The gate of an agent that was read through `gated`."""
    read: Any = agent
    fleet: dict[str, Any] = read.fleet_read or _NO_FLEET
    return Gate(
        agent=agent,
        limit=max(0, min(agent.max_parallel_tasks, fleet["ceiling"])),
        ceiling=fleet["ceiling"],
        fleet_limit=fleet["limit"],
        fleet_on_full=fleet["on_full"],
        paused=agent.paused or bool(fleet["paused"]),
        head=_head(read.head),
    )


def gate_in_place(row: Execution) -> Gate:
    """The gate of a row read through `backlog.selectors.next_in_place`: neither paused nor capped."""
    read: Any = row
    return Gate(
        agent=row.agent, limit=max(0, min(row.agent.max_parallel_tasks, read.ceiling)), ceiling=read.ceiling,
        fleet_limit=None, fleet_on_full="queue", paused=False, head=None,
    )  # fmt: skip


def look(agent_id: int) -> Gate | None:
    """The living agent's gate now; None when it was deleted."""
    agent = gated(Agent.objects.filter(pk=agent_id, deleted_at=None)).first()
    return gate_of(agent) if agent else None


def _head(read: dict[str, Any] | None) -> Head | None:
    return None if read is None else Head(id=uuid.UUID(str(read["id"])), timeout_seconds=read["timeout_seconds"], preview=read["preview"])


def fleet_settings() -> FleetSettings:
    """The fleet-wide settings."""
    return FleetSettings.objects.get(pk=1)
