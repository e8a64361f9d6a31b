"""Changes of execution rows, each one transaction or one conditional UPDATE; a lost race is an answer, no exception.

Every write of a run names its `slot_token` (the fence): a late result, a second delivery or a zombie matches no row.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Now

from fleet.errors import AgentNotFound
from fleet.models import Agent

from . import arrivals, presence, selectors
from .drafts import Draft, Queued
from .errors import KeyTaken
from .models import Execution, IdempotencyKey, Status


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended; `error_code` "" is success."""

    response: str | None = None
    error_code: str = ""
    error: str = ""
    usage: dict[str, Any] | None = None


# -- Into the table ----------------------------------------------------------------------------------------------------


def insert_running(*, agent: Agent, draft: Draft, token: uuid.UUID, number: int) -> Execution | None:
    """The row of a draft that already holds a slot.

    None where another row of its session came first. Raises `KeyTaken` where its id or its idempotency key exists already.
    """
    row = arrivals.new_row(agent=agent, draft=draft, status=Status.RUNNING)
    row.slot_token, row.slot_number = token, number
    row.granted_at = row.dispatched_at = Now()
    row.dispatches = 1
    try:
        with transaction.atomic():
            if _session_is_taken(agent=agent, draft=draft):
                return None
            arrivals.insert(row=row, draft=draft)
    except IntegrityError as error:
        if selectors.accepted_before(agent=agent, draft=draft):
            raise KeyTaken from error
        if draft.session_id is None:
            raise
        return None
    return row


def _session_is_taken(*, agent: Agent, draft: Draft) -> bool:
    """Whether a row of the session came meanwhile. Under the agent's row, where enqueue decides which of them may start."""
    if draft.session_id is None or draft.opens_session:
        return False
    Agent.objects.select_for_update(no_key=True).values_list("pk").get(pk=agent.pk)
    return selectors.unfinished_of_session(draft.session_id).exists()


def enqueue(*, agent: Agent, draft: Draft, limit: int, exceed_depth: bool = False) -> Queued:
    """Put a draft in line: depth check and insert in one transaction under the agent's row.

    Raises `QueueFull` where too many turns wait, `BacklogFull` at the depth, `KeyTaken` where its id or its idempotency key
    exists already, `AgentNotFound` where the agent was deleted meanwhile.
    """
    try:
        return _enqueue(agent=agent, draft=draft, limit=limit, exceed_depth=exceed_depth)
    except IntegrityError as error:
        if selectors.accepted_before(agent=agent, draft=draft):
            raise KeyTaken from error
        raise


def _enqueue(*, agent: Agent, draft: Draft, limit: int, exceed_depth: bool) -> Queued:
    with transaction.atomic():
        # Of no effect on SQLite, where the transaction took the write lock at its BEGIN.
        held = Agent.objects.select_for_update(no_key=True).only("max_backlog_depth", "deleted_at").get(pk=agent.pk)
        if held.deleted_at is not None:
            raise AgentNotFound
        line = arrivals.line_seen_by(agent=agent, draft=draft)
        refusal = None if exceed_depth else arrivals.refusal(held, name=agent.name, draft=draft, limit=limit, depth=line["depth"])
        if refusal is not None:
            if selectors.key_taken(agent=agent, draft=draft):
                raise KeyTaken
            raise refusal
        row = arrivals.new_row(agent=agent, draft=draft, status=Status.QUEUED)
        row.startable = draft.session_id is None or not selectors.unfinished_of_session(draft.session_id).exists()
        arrivals.insert(row=row, draft=draft)
    return Queued(execution_id=row.id, position=line["ahead"] + 1)


# -- Queued ⇄ running --------------------------------------------------------------------------------------------------


def claim(*, execution_id: uuid.UUID, token: uuid.UUID, number: int) -> bool:
    """Whether the queued row is now `running` under `token`; False where somebody else was first.

    A row whose session runs already is not startable any more. Not to be called for one of a session inside a transaction,
    which that would break.
    """
    try:
        return _claim(execution_id=execution_id, token=token, number=number)
    except IntegrityError:
        _wait_for_session(execution_id)
        return False


def _wait_for_session(execution_id: uuid.UUID) -> None:
    """Make the queued row wait for the run of its session: one that was submitted at the same time has taken a slot directly.

    The end of that run makes it startable again.
    """
    with transaction.atomic():
        _lock_agent_of(execution_id)
        holding = Execution.objects.filter(session=OuterRef("session"), slot_token__isnull=False)
        Execution.objects.filter(Exists(holding), pk=execution_id, status=Status.QUEUED).update(startable=False)


def _claim(*, execution_id: uuid.UUID, token: uuid.UUID, number: int) -> bool:
    line = Execution.objects.filter(
        presence.attended(), pk=execution_id, status=Status.QUEUED, startable=True, slot_token=None, cancel_requested_at=None
    )
    return (
        line.update(
            status=Status.RUNNING, slot_token=token, slot_number=number or None, granted_at=Now(), dispatched_at=Now(), dispatches=1
        )
        == 1
    )


def undo_claim(*, execution_id: uuid.UUID, token: uuid.UUID) -> bool:
    """Whether the row is back in its place in line; only one that never started goes back."""
    return (
        Execution.objects.filter(pk=execution_id, slot_token=token, status=Status.RUNNING, started_at=None).update(
            status=Status.QUEUED, slot_token=None, slot_number=None, granted_at=None, dispatched_at=None, dispatches=0
        )
        == 1
    )


def undo_all_claims(*, granted_before: datetime) -> int:
    """Put every row that was granted a slot before then and has not started back in line (the gate was emptied)."""
    return Execution.objects.filter(status=Status.RUNNING, started_at=None, granted_at__lte=granted_before).update(
        status=Status.QUEUED, slot_token=None, slot_number=None, granted_at=None, dispatched_at=None, dispatches=0
    )


def start(*, execution_id: uuid.UUID, token: uuid.UUID, number: int | None = None) -> bool:
    """Whether this call is the one that starts the row's work; at most one ever is."""
    values: dict[str, Any] = {"started_at": Now()}
    if number:
        values["slot_number"] = number
    return Execution.objects.filter(pk=execution_id, slot_token=token, status=Status.RUNNING, started_at=None).update(**values) == 1


# -- To the end --------------------------------------------------------------------------------------------------------


def finish(*, execution_id: uuid.UUID, token: uuid.UUID, outcome: Outcome, session_id: uuid.UUID | None = None) -> bool:
    """Write a run's result and give up the row's hold on its slot; False where the row isn't this run's any more.

    A cancel that was asked for before decides the status, whatever the run reports.
    """
    return _ending(
        lambda: _finish(execution_id=execution_id, token=token, outcome=outcome), execution_id=execution_id, session_id=session_id
    )


def _finish(*, execution_id: uuid.UUID, token: uuid.UUID, outcome: Outcome) -> bool:
    mine = Execution.objects.filter(pk=execution_id, slot_token=token, status=Status.RUNNING)
    return _end_run(mine, outcome=outcome, slot_token=None)


def _end_run(which: QuerySet[Execution], *, outcome: Outcome, **values: Any) -> bool:
    """Whether the run's row has ended now; as `cancelled` where that was asked for.

    Two plain statements, the second hardly ever sent: a cancel is never taken back, so none can slip in between, and one
    statement with the choice inside costs more to compose than both.
    """
    values |= {name: used for name, used in (outcome.usage or {}).items() if used is not None}
    status = Status.FAILED if outcome.error_code else Status.SUCCESS
    reported = {"status": status, "error_code": outcome.error_code, "error": outcome.error, "response": outcome.response}
    if which.filter(cancel_requested_at=None).update(completed_at=Now(), **reported, **values):
        return True
    deleted = Exists(Agent.objects.filter(pk=OuterRef("agent_id"), deleted_at__isnull=False))
    code = Case(When(deleted, then=Value("agent_deleted")), default=Value("cancelled"))
    cancelled = {"status": Status.CANCELLED, "error_code": code, "error": "", "response": None}
    return which.filter(cancel_requested_at__isnull=False).update(completed_at=Now(), **cancelled, **values) == 1


def _ending(write: Callable[[], bool], *, execution_id: uuid.UUID, session_id: uuid.UUID | None) -> bool:
    """`write`, which ends a row or lets go of its slot, and with it the start of whoever is next in its session.

    One transaction: a crash in between would leave a session that waits for nobody. Under the agent's row, where enqueue
    decides `startable`: it must not miss this end, nor this the row that it is about to commit.
    """
    if session_id is None:
        return write()
    with transaction.atomic():
        _lock_agent_of(execution_id)
        written = write()
        if written:
            let_next_of_session_start(session_id)
    return written


def _lock_agent_of(execution_id: uuid.UUID) -> None:
    # Not in full: inserting a row that refers to the agent needn't wait for us.
    Agent.objects.select_for_update(of=("self",), no_key=True).filter(executions__pk=execution_id).values_list("pk").first()


def let_next_of_session_start(session_id: uuid.UUID) -> None:
    """Make the session's first queued row startable, unless one of its rows still holds a slot."""
    if Execution.objects.filter(session_id=session_id, slot_token__isnull=False).exists():
        return
    first = Execution.objects.filter(session_id=session_id, status=Status.QUEUED).order_by("queued_at", "id").values_list("pk", flat=True)
    Execution.objects.filter(pk__in=list(first[:1]), startable=False).update(startable=True)


def finish_and_claim_next(
    *,
    agent_id: int,
    execution_id: uuid.UUID,
    token: uuid.UUID,
    outcome: Outcome,
    next_token: uuid.UUID,
    session_id: uuid.UUID | None = None,
) -> tuple[bool, Execution | None]:
    """`finish`, and in the same transaction the claim of the agent's next startable row under `next_token`.

    Returns whether the result was written, and the claimed row (with its agent and `ceiling`) as it was read before the
    claim; None where nothing may start in place, see `selectors.next_in_place`.
    """
    with transaction.atomic():
        written = finish(execution_id=execution_id, token=token, outcome=outcome, session_id=session_id)
        return written, _claim_head(agent_id=agent_id, token=next_token) if written else None


def _claim_head(*, agent_id: int, token: uuid.UUID) -> Execution | None:
    lost: set[uuid.UUID] = set()
    line = selectors.next_in_place(agent_id)
    while (head := (line.exclude(pk__in=lost) if lost else line).first()) is not None:
        if head.session_id is None:
            claimed = claim(execution_id=head.pk, token=token, number=0)
        else:
            claimed = _claim_in_savepoint(execution_id=head.pk, token=token)
        if claimed:
            return head
        lost.add(head.pk)
    return None


def _claim_in_savepoint(*, execution_id: uuid.UUID, token: uuid.UUID) -> bool:
    try:
        with transaction.atomic():
            return _claim(execution_id=execution_id, token=token, number=0)
    except IntegrityError:
        return False


def fail_queued(*, execution_id: uuid.UUID, error_code: str, error: str, session_id: uuid.UUID | None = None) -> bool:
    """Whether the queued row has failed now, without having run."""
    return _end_queued(execution_id, session_id, status=Status.FAILED, error_code=error_code, error=error)


def _end_queued(execution_id: uuid.UUID, session_id: uuid.UUID | None, **values: Any) -> bool:
    queued = Execution.objects.filter(pk=execution_id, status=Status.QUEUED)
    return _ending(lambda: queued.update(completed_at=Now(), **values) == 1, execution_id=execution_id, session_id=session_id)


def fence(*, execution_id: uuid.UUID, token: uuid.UUID, outcome: Outcome) -> bool:
    """Whether the started run has this outcome now. The row keeps its token until its work is known to be over."""
    started = Execution.objects.filter(pk=execution_id, slot_token=token, status=Status.RUNNING, started_at__isnull=False)
    return _end_run(started, outcome=outcome)


def fence_lost(*, execution_id: uuid.UUID, token: uuid.UUID, error_code: str, error: str) -> bool:
    """`fence` for a started run whose lease ended: it has failed."""
    return fence(execution_id=execution_id, token=token, outcome=Outcome(error_code=error_code, error=error))


def fail_granted(*, execution_id: uuid.UUID, token: uuid.UUID, error_code: str, error: str, session_id: uuid.UUID | None = None) -> bool:
    """Whether the row held a slot without having started and has failed now; its slot is the caller's to free."""
    granted = Execution.objects.filter(pk=execution_id, slot_token=token, status=Status.RUNNING, started_at=None)
    values = {"status": Status.FAILED, "error_code": error_code, "error": error, "completed_at": Now(), "slot_token": None}
    return _ending(lambda: granted.update(**values) == 1, execution_id=execution_id, session_id=session_id)


def clear_token(*, execution_id: uuid.UUID, token: uuid.UUID, session_id: uuid.UUID | None = None) -> bool:
    """Whether a fenced row has let go of its slot now."""
    fenced = Execution.objects.filter(pk=execution_id, slot_token=token).exclude(status=Status.RUNNING)
    return _ending(lambda: fenced.update(slot_token=None) == 1, execution_id=execution_id, session_id=session_id)


# -- Cancel ------------------------------------------------------------------------------------------------------------


def cancel_queued(*, execution_id: uuid.UUID, error_code: str = "cancelled", session_id: uuid.UUID | None = None) -> bool:
    """Whether the row was in line and is cancelled now."""
    return _end_queued(execution_id, session_id, status=Status.CANCELLED, error_code=error_code, cancel_requested_at=Now())


def cancel_granted(
    *, execution_id: uuid.UUID, token: uuid.UUID, error_code: str = "cancelled", session_id: uuid.UUID | None = None
) -> bool:
    """Whether the row held a slot without having started and is cancelled now; its slot is the caller's to free."""
    granted = Execution.objects.filter(pk=execution_id, slot_token=token, status=Status.RUNNING, started_at=None)
    values = {"status": Status.CANCELLED, "error_code": error_code, "cancel_requested_at": Now(), "completed_at": Now(), "slot_token": None}
    return _ending(lambda: granted.update(**values) == 1, execution_id=execution_id, session_id=session_id)


def request_cancel(*, execution_id: uuid.UUID) -> bool:
    """Whether the row's work has started and goes on; from now on its outcome is `cancelled`."""
    return (
        Execution.objects.filter(pk=execution_id, status=Status.RUNNING, started_at__isnull=False).update(
            cancel_requested_at=Case(When(cancel_requested_at=None, then=Now()), default=F("cancel_requested_at"))
        )
        == 1
    )


# -- Housekeeping ------------------------------------------------------------------------------------------------------


def expire(*, seconds: float) -> list[Execution]:
    """Fail what has waited longer than `seconds`; returns the rows as they were."""
    waited = list(selectors.waiting_longer_than(seconds).only("agent_id", "agent_name", "session_id")[:500])
    sentence = f"Waited longer than {seconds:.0f} seconds"
    return [row for row in waited if fail_queued(execution_id=row.pk, error_code="expired", error=sentence, session_id=row.session_id)]


def mend_sessions() -> list[Execution]:
    """Make startable what waits for a run of its session though none is left; returns the rows as they were."""
    before_it = Execution.objects.filter(Q(status=Status.QUEUED, startable=True) | Q(slot_token__isnull=False), session=OuterRef("session"))
    stuck = Execution.objects.filter(~Exists(before_it), status=Status.QUEUED, startable=False)
    found = list(stuck.only("agent_id", "agent_name", "session_id").order_by("-queued_at", "-id"))
    first_of = {row.session_id: row for row in found if row.session_id is not None}
    without = [row for row in found if row.session_id is None and stuck.filter(pk=row.pk).update(startable=True)]
    return without + [
        row for row in first_of.values() if _ending(stuck.filter(pk=row.pk).exists, execution_id=row.pk, session_id=row.session_id)
    ]


def forget_key(record: IdempotencyKey, *, older_than: timedelta) -> bool:
    """Whether the key was too old to count; its row is gone then."""
    age: timedelta = record.age  # type: ignore[attr-defined]
    if age < older_than:
        return False
    IdempotencyKey.objects.filter(pk=record.pk).delete()
    return True


def note_dispatched(*, execution_id: uuid.UUID, token: uuid.UUID) -> bool:
    """Record one more dispatch of a granted row; False where it has started or gone meanwhile."""
    return (
        Execution.objects.filter(pk=execution_id, slot_token=token, status=Status.RUNNING, started_at=None).update(
            dispatched_at=Now(), dispatches=F("dispatches") + 1
        )
        == 1
    )


def note_undispatched(*, execution_ids: list[uuid.UUID]) -> None:
    """Record that the start of these granted rows could not be published; the sweep does it again.

    What was not published doesn't count as a dispatch: however long the broker was away, the pauses after it begin short.
    """
    published = Case(When(dispatches__gt=0, then=F("dispatches") - 1), default=0)
    Execution.objects.filter(pk__in=execution_ids, status=Status.RUNNING, started_at=None).update(dispatched_at=None, dispatches=published)
