"""Where unfinished executions stand: their places in line, and what each waits for. Of the rows alone; the gate isn't asked."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from backlog import selectors as backlog
from backlog.models import Execution, Status
from fleet.models import FleetSettings
from fleet.selectors import effective_limit, fleet_settings


class WaitingFor(StrEnum):
    """Why an execution has not started; where several apply, the first."""

    PAUSED = "paused"
    SESSION = "session"
    FLEET = "fleet"
    CEILING = "ceiling"
    SLOT = "slot"
    WORKER = "worker"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One execution's place (1-based) and its reason to wait; both None for one whose work has begun or ended."""

    queue_position: int | None = None
    waiting_for: WaitingFor | None = None


@dataclass(frozen=True, kw_only=True)
class _Load:
    """What decides why rows wait."""

    fleet: FleetSettings
    fleet_full: bool
    holders: dict[int, int]


def standings(rows: Sequence[Execution]) -> dict[uuid.UUID, Standing]:
    """`{id: Standing}` of all the rows, which were read with their agents, by at most four queries."""
    positions = backlog.positions_of(rows)
    load = _load(rows) if positions else None
    return {row.pk: _standing(row, position=positions.get(row.pk), load=load) for row in rows}


def standing(row: Execution) -> Standing:
    """The standing of one row."""
    return standings([row])[row.pk]


def _load(rows: Sequence[Execution]) -> _Load:
    fleet = fleet_settings()
    cap = fleet.max_concurrent_tasks
    waiting = {row.agent_id for row in rows if row.status == Status.QUEUED}
    return _Load(fleet=fleet, fleet_full=cap is not None and backlog.holding().count() >= cap, holders=backlog.holders(waiting))


def _standing(row: Execution, *, position: int | None, load: _Load | None) -> Standing:
    if row.status == Status.RUNNING and row.started_at is None:
        return Standing(waiting_for=WaitingFor.WORKER)
    if row.status != Status.QUEUED or load is None:
        return Standing()
    return Standing(queue_position=position, waiting_for=_reason(row, load))


def _reason(row: Execution, load: _Load) -> WaitingFor:
    if row.agent.paused or load.fleet.paused:
        return WaitingFor.PAUSED
    if not row.startable:
        return WaitingFor.SESSION
    if load.fleet_full:
        return WaitingFor.FLEET
    active = load.holders.get(row.agent_id, 0)
    # Below its own limit, so that without the ceiling it would have a slot.
    if effective_limit(row.agent, load.fleet.max_parallel_tasks_ceiling) <= active < row.agent.max_parallel_tasks:
        return WaitingFor.CEILING
    return WaitingFor.SLOT
