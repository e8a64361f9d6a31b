"""Repair: what crashed midway is put right, from the rows and the gate as they are now.

Fence the row, stop the work, then free the slot. Each step is conditional on the token (and the phase) that was seen, so
that any number of passes, at once and in any order, do no harm. `housekeeping` calls these; each repair is a log line.
"""

import uuid
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import ExpressionWrapper, F, fields
from django.db.models.functions import Now

from backlog import selectors as rows
from backlog import services as backlog
from backlog.models import TERMINAL, Execution, Status
from capacity.leases import Admission, Lease, Phase
from capacity.manager import CapacityManager
from core import events
from core.conf import conf
from fleet.models import RuntimeKind

from .. import dispatch
from ..events import ExecutionFinished
from ..runtimes import runtime_for
from ..runtimes.base import Run
from .keeper import margin_seconds

log = structlog.get_logger(__name__)
manager = CapacityManager()

#: Rows dispatched again in one pass: a broker that is back must not be flooded by its own backlog.
MOST_DISPATCHES_A_PASS = 200
_SECONDS = fields.DurationField()
_LOST = "The worker that ran the task was lost"


def repair_lost() -> None:
    """End the work of holders whose lease ended, and give their slots to the line."""
    for holder in manager.reclaim_stale():
        lease = Lease(agent=holder.agent, execution_id=holder.execution_id, token=holder.token, timeout_seconds=0, number=holder.number)
        row = _row_of(holder.execution_id)
        if row is None or row.slot_token != holder.token:
            _note("slot_without_row", lease)
            _free(row, lease)
        elif row.status == Status.RUNNING and row.started_at is None:
            _requeue(row, lease)
        else:
            _end_lost(row, lease)


def repair_rows_without_slot() -> None:
    """Rows that hold a token the gate doesn't know: rows are read first, so that a slot taken meanwhile is seen."""
    old = list(_aged(rows.holding(), since="granted_at").filter(age__gt=timedelta(seconds=conf.orphan_seconds)))
    if not old:
        return
    held = {(holder.execution_id, holder.token) for holder in manager.holders()}
    for row in old:
        if (row.pk, row.slot_token) in held:
            continue
        lease = _lease(row)
        if row.status == Status.RUNNING and row.started_at is None:
            _requeue(row, lease)
        else:
            _end_lost(row, lease)


def repair_slots_without_row() -> None:
    """Slots whose token no row carries: the gate is read first, so that a row written meanwhile is seen."""
    holders = manager.holders()
    tokens = rows.tokens_of([holder.execution_id for holder in holders])
    for holder in holders:
        token, status = tokens.get(holder.execution_id, (None, ""))
        if token == holder.token:
            continue
        if status in TERMINAL or holder.phase == Phase.LOST or holder.age_seconds > conf.orphan_seconds:
            lease = Lease(agent=holder.agent, execution_id=holder.execution_id, token=holder.token, timeout_seconds=0, number=holder.number)
            _note("slot_without_row", lease)
            # Only as it was seen: a request that was long at inserting its row may have done so, and a worker have begun it.
            _free(_row_of(holder.execution_id), lease, phase=None if status in TERMINAL else holder.phase)


def dispatch_again() -> None:
    """Publish granted rows whose start was not published, or not heard: after 60 s, then 120, 240, …"""
    granted = _aged(rows.granted_not_started().filter(slot_token__isnull=False), since="dispatched_at").order_by("granted_at")
    # Those that are due, not the oldest: they may all have been heard of, and wait for a thread.
    due = [row for row in granted if _is_due(row)]
    for row in due[:MOST_DISPATCHES_A_PASS]:
        if backlog.note_dispatched(execution_id=row.pk, token=_lease(row).token):
            if row.dispatched_at is not None:
                _note("dispatched_again", _lease(row))
            dispatch.start([Admission(lease=_lease(row))])


def _is_due(row: Any) -> bool:
    return row.dispatched_at is None or row.age.total_seconds() > conf.redispatch_seconds * 2 ** max(0, row.dispatches - 1)


def expire_waiting() -> None:
    """Fail what has waited too long."""
    expired = backlog.expire(seconds=conf.expiry_seconds)
    # All are told before the gate is asked, which may be out of reach.
    for row in expired:
        _ended(row)
    for agent_id in dict.fromkeys(row.agent_id for row in expired):
        dispatch.start(manager.withdraw(agent_id=agent_id, lease=None))


def repair_sessions() -> None:
    """Sessions whose next row was not told that it may start."""
    if mended := backlog.mend_sessions():
        log.warning("repair.done", kind="session_waited_for_nobody", rows=mended)


def terminate_lost(*, execution_id: uuid.UUID, token: uuid.UUID) -> None:
    """Ask the agent of a fenced run to end it; once it has, free the slot."""
    row = Execution.objects.filter(pk=execution_id, slot_token=token, status__in=TERMINAL).select_related("agent").first()
    if row is None:
        return
    run = Run(
        execution_id=row.pk, token=token, agent_name=row.agent_name, settings=row.agent.runtime,
        message=row.message, timeout_seconds=row.timeout_seconds,
    )  # fmt: skip
    if runtime_for(row.agent.runtime_kind).cancel(run):
        _let_go(row, _lease(row))


# -- Steps -------------------------------------------------------------------------------------------------------------


def _end_lost(row: Execution, lease: Lease) -> None:
    """Fence a started run; free its slot when its work is known to be over, at the latest at its hard limit."""
    if row.status == Status.RUNNING:
        if backlog.fence_lost(execution_id=row.pk, token=lease.token, error_code="worker_lost", error=_LOST):
            _note("worker_lost", lease)
            _ended(row)
        row.refresh_from_db()
    if row.slot_token != lease.token or row.status == Status.RUNNING:
        return
    if _is_over(row):
        _let_go(row, lease)
    elif row.agent.runtime_kind == RuntimeKind.HTTP:
        dispatch.terminate(lease)


def _is_over(row: Execution) -> bool:
    """Whether a fenced run's work can't go on.

    A command's supervisor ends it before its lease does, or, where only the row could be asked, a margin after the fence.
    Any other agent has to say so, which `terminate_lost` asks; the hard limit is the end of every run.
    """
    now = _now()
    if row.started_at is None or row.completed_at is None:
        return True
    if now > row.started_at + timedelta(seconds=row.timeout_seconds + 300):
        return True
    return row.agent.runtime_kind != RuntimeKind.HTTP and now > row.completed_at + timedelta(seconds=2 * margin_seconds())


def _let_go(row: Execution, lease: Lease) -> None:
    """Row, then slot, then the line."""
    backlog.clear_token(execution_id=row.pk, token=lease.token, session_id=row.session_id)
    _free(row, lease)


def _requeue(row: Execution, lease: Lease) -> None:
    if not backlog.undo_claim(execution_id=row.pk, token=lease.token):
        return  # started, cancelled or put back since it was seen: the next pass sees what it is now
    _note("put_back_in_line", lease)
    dispatch.start(manager.withdraw(agent_id=row.agent_id, lease=lease))


def _free(row: Execution | None, lease: Lease, *, phase: Phase | None = None) -> None:
    dispatch.start(manager.free(lease=lease, agent_id=None if row is None else row.agent_id, phase=phase))


def _ended(row: Execution) -> None:
    events.publish(ExecutionFinished(execution_id=row.pk, agent=row.agent_name))


def _note(kind: str, lease: Lease) -> None:
    log.warning("repair.done", kind=kind, agent=lease.agent, execution_id=str(lease.execution_id))


def _row_of(execution_id: uuid.UUID) -> Execution | None:
    return Execution.objects.filter(pk=execution_id).select_related("agent").first()


def _lease(row: Execution) -> Lease:
    assert row.slot_token is not None  # noqa: S101 - callers have looked
    return Lease(
        agent=row.agent_name, execution_id=row.pk, token=row.slot_token, timeout_seconds=row.timeout_seconds, number=row.slot_number or 0
    )


def _aged(queryset: Any, *, since: str) -> Any:
    """The rows, each with `age` since that column on the database's clock."""
    return queryset.select_related("agent").annotate(age=ExpressionWrapper(Now() - F(since), output_field=_SECONDS))


def _now() -> datetime:
    return rows.database_now()
