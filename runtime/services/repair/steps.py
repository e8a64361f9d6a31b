"""The steps that several repairs share, each conditional on the token that was seen."""

import uuid
from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog
from django.db import Error
from django.db.models import QuerySet

from backlog import services as backlog
from backlog.models import Execution, Status
from capacity.errors import SlotsUnavailable
from capacity.leases import Lease, Phase
from capacity.manager import CapacityManager
from core import events
from core.redis import RedisError

from ... import dispatch
from ...events import ExecutionFinished
from .journal import Kind, note

log = structlog.get_logger(__name__)
manager = CapacityManager()
T = TypeVar("T")

#: Rows may carry messages of megabytes, and agents secrets that would be decrypted: repair reads neither.
COLUMNS = (
    "agent_name", "status", "slot_token", "slot_number", "timeout_seconds", "granted_at", "dispatched_at", "dispatches",
    "started_at", "completed_at", "session_id", "agent__runtime_kind",
)  # fmt: skip
_LOST = "The worker that ran the task was lost"


def each(found: Iterable[T], repair: Callable[[T], object]) -> None:
    """Repair one after the other; one that can't be for a fault of ours doesn't keep the others from it."""
    for one in found:
        try:
            repair(one)
        except (Error, SlotsUnavailable, RedisError):
            raise  # a store is away: the next pass
        except Exception:
            log.exception("repair.broke", repairing=repr(one))


def light(found: QuerySet[Execution]) -> QuerySet[Execution]:
    """The rows with what repair reads of them, each with its agent's kind."""
    return found.select_related("agent").only(*COLUMNS)


def row_of(execution_id: uuid.UUID) -> Execution | None:
    """The row as it is now."""
    return light(Execution.objects.filter(pk=execution_id)).first()


def lease_of(row: Execution) -> Lease:
    """The lease of a row that holds a slot."""
    assert row.slot_token is not None  # noqa: S101 - callers have looked
    return Lease(
        agent=row.agent_name, execution_id=row.pk, token=row.slot_token, timeout_seconds=row.timeout_seconds, number=row.slot_number or 0
    )


def retire(row: Execution, lease: Lease, *, slot: str) -> None:
    """Take a row out of what held its slot: back to its place if it never started, else fenced. `slot`: "lost" or "gone"."""
    if row.status != Status.RUNNING or row.slot_token != lease.token:
        return  # fenced before, or no longer what was seen
    if row.started_at is None:
        requeue(row, lease, slot=slot)
    else:
        fence(row, lease, slot=slot)


def requeue(row: Execution, lease: Lease, *, slot: str) -> None:
    """Put a row that never started back in its place, then free its slot."""
    if not backlog.undo_claim(execution_id=row.pk, token=lease.token):
        return  # started, cancelled or put back since it was seen: the next pass sees what it is now
    note(Kind.PUT_BACK_IN_LINE, lease, slot=slot, slot_number=lease.number)
    dispatch.start(manager.withdraw(agent_id=row.agent_id, lease=lease))


def fence(row: Execution, lease: Lease, *, slot: str) -> None:
    """Fail a started row. It keeps its token, and with it its slot, until its work is known to be over."""
    if backlog.fence_lost(execution_id=row.pk, token=lease.token, error_code="worker_lost", error=_LOST):
        note(Kind.WORKER_LOST, lease, slot=slot, slot_number=lease.number)
        ended(row)


def free(row: Execution | None, lease: Lease, *, phase: Phase | None = None) -> bool:
    """Free the slot of this token, only in `phase` where one is given, and fill it; whether it was this call that freed it."""
    freed, admissions = manager.free(lease=lease, agent_id=None if row is None else row.agent_id, phase=phase)
    dispatch.start(admissions)
    return freed


def ended(row: Execution) -> None:
    """Tell that a row has reached its terminal status."""
    events.publish(ExecutionFinished(execution_id=row.pk, agent=row.agent_name))
