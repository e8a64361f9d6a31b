"""What owners and superusers steer with: limits, the ceiling; and the cancel of one execution."""

import uuid
from collections.abc import Callable

import structlog

from backlog import services as backlog
from backlog.models import TERMINAL, Execution, Status
from capacity.errors import SlotsUnavailable
from capacity.events import LimitChanged
from capacity.leases import Admission, Lease
from capacity.manager import CapacityManager
from core import events
from fleet import access
from fleet import services as fleet
from fleet.models import Agent
from fleet.principals import Principal

from .. import dispatch
from ..errors import AlreadyFinished
from ..events import ExecutionFinished
from ..selectors import cancellable_for

log = structlog.get_logger(__name__)
manager = CapacityManager()


def set_limit(*, principal: Principal, name: str, changes: dict[str, int], expected_version: int | None = None) -> Agent:
    """Change an agent's `max_parallel_tasks`, `max_backlog_depth`, `execution_timeout_seconds`; a raise starts what waits.

    Raises access's errors, `Invalid` and, where `expected_version` is another one, `Precondition`.
    """
    agent = access.agent_for(principal=principal, name=name, verb="change")
    changed, _before = fleet.change_limit(principal=principal, agent=agent, changes=changes, expected_version=expected_version)
    dispatch.start(_opened(lambda: manager.resize(agent_id=changed.pk)))
    events.publish(LimitChanged(agent=changed.name, limit=changed.max_parallel_tasks))
    return changed


def set_ceiling(*, principal: Principal, value: int) -> int:
    """Change the fleet-wide upper bound of every limit; a raise starts what waits. Returns the new ceiling."""
    ceiling, _before = fleet.set_ceiling(principal=principal, value=value)
    dispatch.start(_opened(manager.resize_fleet))
    events.publish(LimitChanged(agent="", limit=ceiling))
    return ceiling


def _opened(resize: Callable[[], tuple[Admission, ...]]) -> tuple[Admission, ...]:
    """The setting is a fact in the database already: with the gate out of reach, the sweep starts what it opened."""
    try:
        return resize()
    except SlotsUnavailable as error:
        log.warning("limit.left_to_sweep", error=str(error))
        return ()


def cancel_execution(*, principal: Principal, execution_id: uuid.UUID) -> str:
    """`cancelled` when it is over now, `cancelling` while its work is being stopped; again: the same answer.

    Touches this execution alone. Raises `AlreadyFinished` for one that has ended otherwise.
    """
    row = cancellable_for(principal=principal, execution_id=execution_id)
    while row.status not in TERMINAL:
        if (answer := _cancel_as_seen(row)) is not None:
            return answer
        row.refresh_from_db()  # it moved between the look and the write: look again
    if row.status == Status.CANCELLED:
        return "cancelled"
    raise AlreadyFinished(execution_id=execution_id, status=row.status)


def _cancel_as_seen(row: Execution) -> str | None:
    """The answer, or None where the row is no longer what was seen."""
    if row.status == Status.QUEUED:
        cancelled = backlog.cancel_queued(execution_id=row.pk, session_id=row.session_id)
        return "cancelled" if cancelled and _cancelled(row, lease=None) else None
    if row.started_at is not None:
        return "cancelling" if backlog.request_cancel(execution_id=row.pk) else None
    if row.slot_token is None or not backlog.cancel_granted(execution_id=row.pk, token=row.slot_token, session_id=row.session_id):
        return None
    lease = Lease(agent=row.agent_name, execution_id=row.pk, token=row.slot_token, timeout_seconds=row.timeout_seconds)
    return "cancelled" if _cancelled(row, lease=lease) else None


def _cancelled(row: Execution, *, lease: Lease | None) -> bool:
    events.publish(ExecutionFinished(execution_id=row.pk, agent=row.agent_name))
    dispatch.start(_withdrawn(row, lease=lease))
    return True


def _withdrawn(row: Execution, *, lease: Lease | None) -> tuple[Admission, ...]:
    """The cancel is a fact in the database already: with the gate out of reach, repair frees the slot by its token."""
    try:
        return manager.withdraw(agent_id=row.agent_id, lease=lease)
    except SlotsUnavailable as error:
        log.warning("slot.left_to_repair", execution_id=str(row.pk), error=str(error))
        return ()
