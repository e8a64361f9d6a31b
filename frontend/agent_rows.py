"""The dashboard's list: a row for each agent found, in order, one page of them with all that it shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backlog.occupancy import slots_used
from capacity import selectors as capacity
from capacity.health import health_of
from fleet import access
from fleet.health import Health
from fleet.models import Agent, FleetSettings
from fleet.principals import Principal

from . import agent_search
from .sparkline import Sparkline, sparkline

MINUTES_SHOWN = 60
_ORDER = list(Health)


@dataclass(frozen=True, kw_only=True)
class Found:
    """An agent that was looked for, with its load."""

    agent: Agent
    meter: capacity.Meter
    health: Health

    @property
    def share(self) -> float:
        """How much of its limit is used; below all others where it isn't known."""
        return -1.0 if self.meter.active is None else self.meter.active / max(1, self.meter.max)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the list. `limited_by` is what decides but for a pause, which comes and goes live in the same place."""

    found: Found
    limited_by: str
    may_change: bool
    sparkline: Sparkline


#: What lists may be sorted by, each with its key; whatever is even is in order of names.
SORTS: dict[str, Callable[[Found], Any]] = {
    "name": lambda found: found.agent.name,
    "used": lambda found: found.share,
    "waiting": lambda found: found.meter.queued,
    "health": lambda found: _ORDER.index(found.health),
    "limit": lambda found: found.agent.max_parallel_tasks,
}


def found_by(query: str, *, agents: Sequence[Agent], meters: dict[str, capacity.Meter], reader: str) -> list[Found]:
    """The agents that `query` finds, by name; one deleted between two reads has no meter, and no row."""
    search = agent_search.parse(query)
    known = [Found(agent=agent, meter=meters[agent.name], health=health_of(meters[agent.name])) for agent in agents if agent.name in meters]
    return [found for found in known if search.matches(found.agent, health=found.health, reader=reader)]


def in_order(found: Sequence[Found], sort: str) -> list[Found]:
    """By the column `sort`, the other way round with a minus before it; names decide what is even."""
    key = SORTS[sort.removeprefix("-")]
    return sorted(sorted(found, key=SORTS["name"]), key=key, reverse=sort.startswith("-"))


def rows_of(shown: Sequence[Found], *, principal: Principal, fleet: FleetSettings, running: int, now: datetime) -> list[Row]:
    """The rows of one page, their last hours read by one query; `running` is how many slots the whole fleet holds."""
    used = slots_used([found.agent.pk for found in shown], end=now, minutes=MINUTES_SHOWN) if shown else {}
    return [
        Row(
            found=found,
            limited_by=capacity.bound_by(
                found.agent, ceiling=fleet.max_parallel_tasks_ceiling, fleet_limit=fleet.max_concurrent_tasks, fleet_count=running
            ),
            may_change=access.may(principal, access.Verb.CHANGE, found.agent),
            sparkline=sparkline(used.get(found.agent.pk, [0.0] * MINUTES_SHOWN), limit=found.meter.max),
        )
        for found in shown
    ]
