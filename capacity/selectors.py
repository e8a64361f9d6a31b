"""Reads of load: the meters of many agents, one agent's capacity."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Subquery

from backlog import selectors as backlog
from fleet.models import DEFAULT_MAX_PARALLEL_TASKS, Agent, FleetSettings

from . import slots
from .gate import Gate
from .leases import Holder


@dataclass(frozen=True, kw_only=True)
class Meter:
    """One agent's load. `active` is None while the slot store can't be asked: unknown, not idle."""

    max: int
    active: int | None
    queued: int
    paused: bool
    version: int

    def as_dict(self) -> dict[str, Any]:
        """The value on the wire."""
        return {"max": self.max, "active": self.active, "queued": self.queued, "paused": self.paused, "version": self.version}


def meters(agents: Iterable[Agent]) -> dict[str, Meter]:
    """`{name: Meter}` of the agents, by two queries and one round trip; raises `SlotsUnavailable`.

    Versions and slots are read before rows and limits: a value may be newer than its version says, never older.
    """
    named = {agent.name: agent for agent in agents}
    counts = slots.states(list(named))
    fleet = FleetSettings.objects.filter(pk=1)
    fresh = Agent.objects.filter(pk__in=[agent.pk for agent in named.values()]).annotate(
        ceiling=Subquery(fleet.values("max_parallel_tasks_ceiling")), fleet_paused=Subquery(fleet.values("paused"))
    )
    queued = backlog.depths([agent.pk for agent in named.values()])
    return {
        row["name"]: Meter(
            max=min(row["max_parallel_tasks"], row["ceiling"]),
            active=counts[row["name"]].active,
            queued=queued.get(row["pk"], 0),
            paused=row["paused"] or row["fleet_paused"],
            version=counts[row["name"]].version,
        )
        for row in fresh.values("pk", "name", "max_parallel_tasks", "paused", "ceiling", "fleet_paused")
    }


@dataclass(frozen=True, kw_only=True)
class SlotView:
    """One taken slot as the API shows it."""

    slot_number: int
    execution_id: str
    started_at: datetime
    message_preview: str
    duration_seconds: int


def slots_of(agent: Agent, *, now: datetime) -> list[SlotView]:
    """The agent's taken slots by number; raises `SlotsUnavailable`."""
    holders = holders_for(agent)
    return sorted(
        (
            SlotView(
                slot_number=holder.number,
                execution_id=str(holder.execution_id),
                started_at=holder.taken_at,
                message_preview=holder.message_preview,
                duration_seconds=max(0, int((now - holder.taken_at).total_seconds())),
            )
            for holder in holders
        ),
        key=lambda view: view.slot_number,
    )


def holders_of(name: str) -> list[Holder]:
    """Who holds the agent's slots, by number; raises `SlotsUnavailable`."""
    return slots.state(name).holders


def holders_for(agent: Agent) -> list[Holder]:
    """As `holders_of`; what a former agent of the name still holds is there without its message, which is not this owner's."""
    holders = holders_of(agent.name)
    former = backlog.of_other_agents([holder.execution_id for holder in holders], agent_id=agent.pk) if holders else set()
    return [replace(holder, message_preview="") if holder.execution_id in former else holder for holder in holders]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one agent carries, and what sets its limit now."""

    slots: list[SlotView]
    queued: int
    limited_by: str


def load_of(gate: Gate, *, now: datetime) -> Load:
    """The agent's load; raises `SlotsUnavailable`. The fleet is counted only where it has a cap."""
    taken = slots_of(gate.agent, now=now)
    running = 0 if gate.fleet_limit is None else slots.fleet_count()
    reason = limited_by(gate.agent, ceiling=gate.ceiling, fleet_limit=gate.fleet_limit, fleet_paused=gate.paused, fleet_count=running)
    return Load(slots=taken, queued=backlog.depths([gate.agent.pk]).get(gate.agent.pk, 0), limited_by=reason)


def held_in_fleet() -> int:
    """How many slots the whole fleet holds; raises `SlotsUnavailable`."""
    return slots.fleet_count()


def limited_by(agent: Agent, *, ceiling: int, fleet_limit: int | None, fleet_paused: bool, fleet_count: int) -> str:
    """The first of `paused, fleet, ceiling, override, owner, default` that sets the agent's limit now.

    `fleet`: its cap is what nothing new would get past. `default` is the limit that agents are made with, whoever set it.
    """
    if agent.paused or fleet_paused:
        return "paused"
    return bound_by(agent, ceiling=ceiling, fleet_limit=fleet_limit, fleet_count=fleet_count)


def bound_by(agent: Agent, *, ceiling: int, fleet_limit: int | None, fleet_count: int) -> str:
    """`limited_by` as it is but for a pause."""
    if fleet_limit is not None and fleet_count >= fleet_limit:
        return "fleet"
    if ceiling < agent.max_parallel_tasks:
        return "ceiling"
    if agent.override_until is not None:
        return "override"
    return "default" if agent.max_parallel_tasks == DEFAULT_MAX_PARALLEL_TASKS else "owner"
