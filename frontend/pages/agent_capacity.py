"""What the capacity panel of an agent's page says: the limit in force, what sets it, and who set that."""

from dataclasses import dataclass
from datetime import datetime

from capacity import selectors as capacity
from capacity.errors import SlotsUnavailable
from capacity.health import health_of
from capacity.selectors import Meter
from fleet import access
from fleet.health import Health
from fleet.models import Agent, FleetSettings
from fleet.principals import Principal
from fleet.selectors import effective_limit

#: What `limited_by` means to a person.
REASONS = {
    "paused": "nothing new starts while it is paused",
    "fleet": "the whole fleet is at its cap",
    "ceiling": "held at the ceiling of all limits",
    "override": "a temporary limit",
    "owner": "set for this agent",
    "default": "the limit that agents are made with",
}


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The settings as they stand. `base` and `until` while a limit holds for a time; `reason` None: nobody can tell now."""

    health: Health
    limit: int
    in_force: int
    ceiling: int
    base: int | None
    until: datetime | None
    reason: str | None
    depth: int
    timeout_seconds: int
    paused: bool
    fleet_paused: bool
    fleet_cap: int | None
    version: int
    changed_by: str | None
    changed_at: datetime | None
    may_change: bool
    may_own: bool

    @property
    def health_words(self) -> str:
        """The health word as it is read."""
        return self.health.replace("_", " ").capitalize()


def capacity_of(principal: Principal, agent: Agent, *, meter: Meter, fleet: FleetSettings) -> Capacity:
    """The agent's settings for `principal`; asks the slot store only where the fleet has a cap."""
    return Capacity(
        health=health_of(meter),
        limit=agent.max_parallel_tasks,
        in_force=effective_limit(agent, fleet.max_parallel_tasks_ceiling),
        ceiling=fleet.max_parallel_tasks_ceiling,
        base=agent.base_max_parallel_tasks,
        until=agent.override_until,
        reason=_reason(agent, fleet),
        depth=agent.max_backlog_depth,
        timeout_seconds=agent.execution_timeout_seconds,
        paused=agent.paused,
        fleet_paused=fleet.paused,
        fleet_cap=fleet.max_concurrent_tasks,
        version=agent.settings_version,
        changed_by=agent.changed_by.get_username() if agent.changed_by else None,
        changed_at=agent.changed_at,
        may_change=access.may(principal, access.Verb.CHANGE, agent),
        may_own=access.may(principal, access.Verb.OWN, agent),
    )


def _reason(agent: Agent, fleet: FleetSettings) -> str | None:
    cap = fleet.max_concurrent_tasks
    try:
        running = 0 if cap is None else capacity.held_in_fleet()
    except SlotsUnavailable:
        return None
    ceiling = fleet.max_parallel_tasks_ceiling
    word = capacity.limited_by(agent, ceiling=ceiling, fleet_limit=cap, fleet_paused=fleet.paused, fleet_count=running)
    return REASONS[word]
