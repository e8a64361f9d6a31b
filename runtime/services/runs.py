"""A run from its first renewal to its result, and on to the next in line.

Start: first renewal, then the row, then the work. Give: row, then slot. In place, the one exception: the thread that ends
a run writes its result and claims the next row in one transaction, moves the slot by one handover, and carries that row
itself. A message or a thread that finds anything else than it expects drops it: the row's token is the fence.
"""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, close_old_connections

from backlog import selectors as rows
from backlog import services as backlog
from backlog.models import Execution, Status
from backlog.services import Outcome
from capacity.errors import SlotsUnavailable
from capacity.gate import gate_in_place
from capacity.leases import Admission, Lease, RenewOutcome
from capacity.manager import CapacityManager, preview
from core import events
from core.db import hand_back, storable
from core.ids import new_token
from core.pauses import pause
from fleet.models import Agent
from fleet.selectors import fleet_paused

from .. import dispatch
from ..events import ExecutionFinished, ExecutionStarted
from ..runtimes import runtime_for
from ..runtimes.base import Result, Run, Stop
from ..shutdown import leaving
from .event_log import EventLog
from .fitness import Unfit, unfit
from .keeper import keeper
from .usage import recorded

log = structlog.get_logger(__name__)
manager = CapacityManager()
T = TypeVar("T")

#: A thread hands itself this many runs, then lets the queue's other messages have it.
MOST_IN_A_ROW = 50
#: How long a start waits for a gate that is being rebuilt or can't be reached, before the sweep tries again.
START_PATIENCE_SECONDS = 5.0
LONGEST_WRITE_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A run whose row says `started`: its work may begin. `renewed_at` is the monotonic time before its lease's renewal."""

    lease: Lease
    row: Execution
    agent: Agent
    renewed_at: float


def run_execution(*, execution_id: uuid.UUID, token: uuid.UUID) -> None:
    """Carry an admitted execution, and after it the next ones in line, until there is none or enough."""
    begun = _begin_patiently(execution_id=execution_id, token=token)
    carried = 0
    while begun is not None:
        carried += 1
        current = begun
        try:
            begun = end_run(current, perform(current), in_place=carried < MOST_IN_A_ROW and not leaving.is_set())
        except BaseException:
            # A lease that this thread no longer serves must be left to lapse, or its slot would never be free again.
            keeper.unwatch(current.lease)
            raise


# -- Start -------------------------------------------------------------------------------------------------------------


def begin_run(*, execution_id: uuid.UUID, token: uuid.UUID) -> Begun | None:
    """Start the granted row that carries `token`; None where there is nothing (or nothing any more) to start."""
    granted = Execution.objects.filter(pk=execution_id, slot_token=token, status=Status.RUNNING, started_at=None, agent__deleted_at=None)
    row = rows.with_submitter(granted).annotate(fleet_paused=fleet_paused()).select_related("agent").first()
    if row is None:
        return None
    if leaving.is_set():
        # It would be stopped in its midst; the sweep of a worker that stays dispatches it again.
        backlog.note_undispatched(execution_ids=[execution_id])
        return None
    lease = _lease_of(row)
    if row.agent.paused or row.fleet_paused:
        # Granted before the pause, and perhaps long ago: it takes its place in line again, and begins after the pause.
        _put_back(lease, agent_id=row.agent_id)
        return None
    if (reason := unfit(row)) is not None:
        if _failed_unfit(row, token=token, reason=reason):
            dispatch.start(_freed(agent_id=row.agent_id, lease=lease))
        return None
    renewed_at = time.monotonic()
    match _first_renewal(lease):
        case None:
            backlog.note_undispatched(execution_ids=[execution_id])
        case RenewOutcome.OK if backlog.start(execution_id=execution_id, token=token):
            events.publish(ExecutionStarted(execution_id=execution_id, agent=lease.agent))
            return Begun(lease=lease, row=row, agent=row.agent, renewed_at=renewed_at)
        case RenewOutcome.REFUSED:
            _put_back(lease, agent_id=row.agent_id)
    return None


def _put_back(lease: Lease, *, agent_id: int) -> None:
    """Put a granted row back in its place in line, unless it was started, and free its slot."""
    if backlog.undo_claim(execution_id=lease.execution_id, token=lease.token):
        dispatch.start(_admissions(lambda: manager.withdraw(agent_id=agent_id, lease=lease)))


def _failed_unfit(row: Execution, *, token: uuid.UUID, reason: Unfit) -> bool:
    """Whether the granted row that can't be run has failed now, and whoever waits for it is told."""
    failed = _until_stored(
        lambda: backlog.fail_granted(
            execution_id=row.pk, token=token, error_code=reason.error_code, error=reason.error, session_id=row.session_id
        )
    )
    if failed:
        events.publish(ExecutionFinished(execution_id=row.pk, agent=row.agent_name))
    return failed


def _lease_of(row: Execution) -> Lease:
    assert row.slot_token is not None  # noqa: S101 - selected by it
    return Lease(
        agent=row.agent_name, execution_id=row.pk, token=row.slot_token, timeout_seconds=row.timeout_seconds, number=row.slot_number or 0
    )


def _first_renewal(lease: Lease) -> RenewOutcome | None:
    """The gate's answer; None when it stays out of reach."""
    give_up_at = time.monotonic() + START_PATIENCE_SECONDS
    while True:
        try:
            outcome = manager.renew([lease])[0]
            if outcome != RenewOutcome.REBUILDING:
                return outcome
            manager.refill()
        except SlotsUnavailable:
            log.info("execution.start_waits", execution_id=str(lease.execution_id))
        if time.monotonic() > give_up_at or leaving.wait(0.2):
            return None


# -- Work --------------------------------------------------------------------------------------------------------------


def perform(begun: Begun) -> Result:
    """The agent's result. The keeper holds the lease from here until the slot is given back."""
    stop, event_log = Stop(), EventLog(begun.row.pk)
    keeper.watch(lease=begun.lease, stop=stop, flush=event_log.flush, renewed_at=begun.renewed_at)
    hand_back()
    with structlog.contextvars.bound_contextvars(execution_id=str(begun.row.pk), agent=begun.lease.agent):
        try:
            result = runtime_for(begun.agent.runtime_kind).run(_run_of(begun), event_log.emit, stop)
        except Exception:
            # A bug of ours must end this run, not strand its slot with a lease renewed for ever.
            log.exception("execution.runtime_broke")
            result = Result(error_code="agent_error", error="Trinity failed to run the task")
    _store_events(event_log)
    return result


def _store_events(event_log: EventLog) -> None:
    try:
        while _until_stored(event_log.flush):
            pass
    except DatabaseError:
        log.exception("execution.events_lost")  # the result matters more than its log


def _run_of(begun: Begun) -> Run:
    row = begun.row
    return Run(
        execution_id=row.pk,
        token=begun.lease.token,
        agent_name=row.agent_name,
        settings=begun.agent.runtime,
        message=row.message,
        timeout_seconds=row.timeout_seconds,
        session_id=row.session_id,
        model=row.model,
        system_prompt=row.system_prompt,
        allowed_tools=row.allowed_tools,
        max_turns=row.max_turns,
        metadata=row.metadata,
    )


# -- Give --------------------------------------------------------------------------------------------------------------


def end_run(begun: Begun, result: Result, *, in_place: bool) -> Begun | None:
    """Write the result and give the slot back, or take the next in line with it; returns the run to carry next.

    The result is retried until the database takes it; the keeper renews the lease meanwhile.
    """
    if not result.over:
        _leave_to_repair(begun, result)
        return None
    return _hand_over(begun, result) if in_place else _release(begun, result)


def _release(begun: Begun, result: Result) -> Begun | None:
    outcome, row = _outcome(result), begun.row
    written = _until_stored(
        lambda: backlog.finish(execution_id=row.pk, token=begun.lease.token, outcome=outcome, session_id=row.session_id)
    )
    return _given_back(begun, written=written, here=False)


def _leave_to_repair(begun: Begun, result: Result) -> None:
    """Write the result and leave the slot taken: the agent hasn't said that its work is over, and goes on being asked."""
    row, lease, outcome = begun.row, begun.lease, _outcome(result)
    fenced = _until_stored(lambda: backlog.fence(execution_id=row.pk, token=lease.token, outcome=outcome))
    keeper.unwatch(lease)
    dispatch.terminate(lease)
    if fenced:
        events.publish(ExecutionFinished(execution_id=row.pk, agent=lease.agent))


def _hand_over(begun: Begun, result: Result) -> Begun | None:
    """Result and claim as one, then the slot. What is not granted is undone: the row keeps its place."""
    outcome, row, next_token = _outcome(result), begun.row, new_token()
    written, head = _until_stored(
        lambda: backlog.finish_and_claim_next(
            agent_id=row.agent_id, execution_id=row.pk, token=begun.lease.token, outcome=outcome,
            next_token=next_token, session_id=row.session_id,
        )
    )  # fmt: skip
    if head is not None and (reason := _until_stored(partial(unfit, head))) is not None:
        _failed_unfit(head, token=next_token, reason=reason)
        head = None
    if head is None:
        return _given_back(begun, written=written, here=True)
    following = Lease(agent=begun.lease.agent, execution_id=head.pk, token=next_token, timeout_seconds=head.timeout_seconds)
    renewed_at = time.monotonic()
    granted = manager.handover(gate=gate_in_place(head), done=begun.lease, following=following, preview=preview(head.message))
    keeper.unwatch(begun.lease)
    finished = ExecutionFinished(execution_id=row.pk, agent=begun.lease.agent)
    if granted is None:
        events.publish(finished)
        admissions = _admissions(lambda: manager.undo_claim(agent_id=row.agent_id, done=begun.lease, following=following))
        return _begun(dispatch.start(admissions, here=True))
    return _start_granted(granted, head=head, finished=finished, renewed_at=renewed_at)


def _start_granted(granted: Lease, *, head: Execution, finished: ExecutionFinished, renewed_at: float) -> Begun | None:
    started = _until_stored(lambda: backlog.start(execution_id=head.pk, token=granted.token, number=granted.number))
    if not started:
        events.publish(finished)
        if _until_stored(lambda: rows.carries(execution_id=head.pk, token=granted.token)):
            # A second message, after a long wait for the database: the slot is the run's that another worker began.
            return None
        # Cancelled, or put back by a rebuild, between the claim and here.
        return _begun(dispatch.start(_freed(agent_id=head.agent_id, lease=granted), here=True))
    # Together: a round trip costs as much as either, and the slot stands empty meanwhile.
    events.publish(finished, ExecutionStarted(execution_id=head.pk, agent=granted.agent))
    return Begun(lease=granted, row=head, agent=head.agent, renewed_at=renewed_at)


def _given_back(begun: Begun, *, written: bool, here: bool) -> Begun | None:
    row, lease = begun.row, begun.lease
    if not written:
        # Repair was first and has failed the row; the work is over now, so nothing has to wait for its stop.
        _until_stored(lambda: backlog.clear_token(execution_id=row.pk, token=lease.token, session_id=row.session_id))
    keeper.unwatch(lease)
    admissions = _freed(agent_id=row.agent_id, lease=lease)
    if written:
        # Told when its slot is free: a caller who was waiting and asks again at once finds room.
        events.publish(ExecutionFinished(execution_id=row.pk, agent=lease.agent))
    return _begun(dispatch.start(admissions, here=here))


def _freed(*, agent_id: int, lease: Lease) -> tuple[Admission, ...]:
    return _admissions(lambda: manager.release(agent_id=agent_id, lease=lease))


def _admissions(free: Callable[[], tuple[Admission, ...]]) -> tuple[Admission, ...]:
    """The admissions of a call that frees a slot; with the gate out of reach, repair frees it by its token."""
    try:
        return _until_stored(free)
    except SlotsUnavailable as error:
        log.warning("slot.left_to_repair", error=str(error))
        return ()


def _begun(admission: Admission | None) -> Begun | None:
    return None if admission is None else _begin_patiently(execution_id=admission.execution_id, token=admission.lease.token)


def _begin_patiently(*, execution_id: uuid.UUID, token: uuid.UUID) -> Begun | None:
    """`begin_run`, tried again for as long as the database is away: its message is gone, and another one may be a minute off."""
    return _until_stored(lambda: begin_run(execution_id=execution_id, token=token), give_up=leaving)


def _outcome(result: Result) -> Outcome:
    error = storable(result.error) or ""
    return Outcome(response=storable(result.response), error_code=result.error_code, error=error, usage=recorded(result.usage))


def _until_stored(write: Callable[[], T], *, give_up: threading.Event | None = None) -> T:
    """What `write` returns, tried again for as long as the database is away: a result is never dropped for it.

    What can be done later as well isn't tried again once `give_up` is set.
    """
    seconds = 0.1
    while True:
        try:
            return write()
        except (OperationalError, InterfaceError, InternalError) as error:
            log.warning("database.unreachable", error=str(error))
            close_old_connections()
            if give_up is not None and give_up.is_set():
                raise
            pause(seconds)
            seconds = min(LONGEST_WRITE_PAUSE_SECONDS, seconds * 2)
