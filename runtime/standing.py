"""Where unfinished executions stand: places in line, what each waits for, and when it should start.

The one explanation that the API, the pages and the MCP server give. Of the rows alone; the gate isn't asked.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil, floor

from django.utils import timezone

from backlog import prospects
from backlog import selectors as backlog
from backlog.forecast import FEWEST_RUNS, Outlook, Prospect
from backlog.models import Execution, Status
from backlog.prospects import Known, Place
from fleet.models import Agent, FleetSettings
from fleet.selectors import effective_limit, fleet_settings

#: Places in line that are played through for one page; many agents share them.
PLAYED_A_PAGE = 400
FEWEST_PLAYED = 4


class WaitingFor(StrEnum):
    """Why an execution has not started; where several apply, the first."""

    PAUSED = "paused"
    SESSION = "session"
    FLEET = "fleet"
    CEILING = "ceiling"
    SLOT = "slot"
    WORKER = "worker"


#: Nothing that is known tells when these end.
_UNFORESEEN = {WaitingFor.PAUSED, WaitingFor.SESSION, WaitingFor.FLEET}


@dataclass(frozen=True, kw_only=True)
class StartRange:
    """When an execution should start, as things stand: whole seconds, rounded outwards."""

    earliest: datetime
    latest: datetime


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One execution's place (1-based), its reason to wait and its expected start; all None for one whose work has begun or ended."""

    queue_position: int | None = None
    waiting_for: WaitingFor | None = None
    estimated_start: StartRange | None = None


@dataclass(frozen=True, kw_only=True)
class _Load:
    """What is in the way of rows that wait."""

    fleet: FleetSettings
    fleet_full: bool
    known: Mapping[int, Known]


def standings(rows: Sequence[Execution]) -> dict[uuid.UUID, Standing]:
    """`{id: Standing}` of all the rows, which were read with their agents, by at most four queries."""
    places = prospects.places_of(rows)
    load = _load(rows) if places else None
    reasons = {row.pk: _reason(row, load) for row in rows}
    starts = {} if load is None else _starts([row for row in rows if reasons[row.pk] not in _UNFORESEEN], places, load)
    return {
        row.pk: Standing(
            queue_position=places[row.pk].position if row.pk in places else None,
            waiting_for=reasons[row.pk],
            estimated_start=starts.get(row.pk),
        )
        for row in rows
    }


def standing(row: Execution) -> Standing:
    """The standing of one row."""
    return standings([row])[row.pk]


def _load(rows: Sequence[Execution]) -> _Load:
    fleet = fleet_settings()
    cap = fleet.max_concurrent_tasks
    known = prospects.known_of({row.agent_id for row in rows if row.status == Status.QUEUED})
    return _Load(fleet=fleet, fleet_full=cap is not None and backlog.holding().count() >= cap, known=known)


def _reason(row: Execution, load: _Load | None) -> WaitingFor | None:
    if row.status == Status.RUNNING and row.started_at is None:
        return WaitingFor.WORKER
    if row.status != Status.QUEUED or load is None:
        return None
    if row.agent.paused or load.fleet.paused:
        return WaitingFor.PAUSED
    if not row.startable:
        return WaitingFor.SESSION
    if load.fleet_full:
        return WaitingFor.FLEET
    active = len(load.known[row.agent_id].ages) if row.agent_id in load.known else 0
    # Below its own limit, so that without the ceiling it would have a slot.
    if effective_limit(row.agent, load.fleet.max_parallel_tasks_ceiling) <= active < row.agent.max_parallel_tasks:
        return WaitingFor.CEILING
    return WaitingFor.SLOT


# -- When --------------------------------------------------------------------------------------------------------------


def _starts(rows: Sequence[Execution], places: Mapping[uuid.UUID, Place], load: _Load) -> dict[uuid.UUID, StartRange]:
    """When those of the rows that are in line start, unless too little is known of their agents' runs."""
    told = [row for row in rows if row.pk in places and _is_known(load.known.get(row.agent_id))]
    played = max(FEWEST_PLAYED, PLAYED_A_PAGE // max(1, len({row.agent_id for row in told})))
    deepest: Counter[int] = Counter()
    for row in told:
        deepest[row.agent_id] = max(deepest[row.agent_id], places[row.pk].position)
    agents = {row.agent_id: row.agent for row in told}
    outlooks = {pk: Outlook(_prospect(agent, load), places=min(played, deepest[pk])) for pk, agent in agents.items()}
    now = timezone.now()
    return {row.pk: _range(outlooks[row.agent_id], places[row.pk], now=now) for row in told}


def _is_known(known: Known | None) -> bool:
    return known is not None and len(known.runs) >= FEWEST_RUNS


def _prospect(agent: Agent, load: _Load) -> Prospect:
    known = load.known[agent.pk]
    limit = effective_limit(agent, load.fleet.max_parallel_tasks_ceiling)
    return Prospect(runs=known.runs, ages=known.ages, limit=limit, cap_seconds=agent.execution_timeout_seconds)


def _range(outlook: Outlook, place: Place, *, now: datetime) -> StartRange:
    # Rows before it that wait for their sessions may stay behind, or be ready in time and go first.
    span = outlook.span(place.ready, place.position)
    second = now.replace(microsecond=0)
    return StartRange(earliest=second + timedelta(seconds=floor(span.earliest)), latest=second + timedelta(seconds=ceil(span.latest) + 1))
