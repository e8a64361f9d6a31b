"""What repair did, told three times: in the execution's own log, as a log line, as a count. None of them can stop it."""

import uuid
from enum import StrEnum
from typing import Any

import structlog
from django.db import Error, IntegrityError, transaction
from django.db.models import Count, Max, Q

from backlog.models import Execution, ExecutionEvent
from capacity import repairs
from capacity.leases import Lease

from ..event_log import ATTEMPTS, REPAIR

log = structlog.get_logger(__name__)

#: An execution that is repaired without end must not fill the database.
MOST_EVENTS = 100


class Kind(StrEnum):
    """What was repaired."""

    #: A started run whose lease ended or whose slot is gone: failed (or cancelled, where that was asked for).
    WORKER_LOST = "worker_lost"
    #: Its agent was asked to end it.
    ASKED_TO_END = "asked_to_end"
    #: Its work is over, and its slot was given to the line.
    SLOT_GIVEN_BACK = "slot_given_back"
    #: A row that was granted a slot, but never started and lost it.
    PUT_BACK_IN_LINE = "put_back_in_line"
    #: A slot whose token no row carries: freed.
    SLOT_WITHOUT_ROW = "slot_without_row"
    #: A granted row whose start no worker has heard of: published again.
    DISPATCHED_AGAIN = "dispatched_again"
    #: A row that waited for a run of its session though none is left.
    SESSION_WAITED_FOR_NOBODY = "session_waited_for_nobody"
    #: A turn of a conversation that waited for a slot though nobody waited for its answer any more: cancelled.
    CALLER_GONE = "caller_gone"


def note(kind: Kind, lease: Lease, **seen: Any) -> None:
    """Tell that `lease`'s execution was repaired, and what was `seen` before. Call it after the repair: nothing here undoes it."""
    note_row(kind, execution_id=lease.execution_id, agent=lease.agent, **seen)


def note_row(kind: Kind, *, execution_id: uuid.UUID, agent: str, **seen: Any) -> None:
    """`note` for a row that holds no slot."""
    log.warning("repair.done", kind=kind.value, agent=agent, execution_id=str(execution_id), **seen)
    repairs.count(kind.value)
    try:
        _store(execution_id, {"kind": kind.value, "seen": seen})
    except Error as error:
        log.warning("repair.event_not_stored", execution_id=str(execution_id), error=str(error))


def _store(execution_id: uuid.UUID, data: dict[str, Any]) -> None:
    """Add to the end of the execution's log; a run that writes to it at the same moment goes first."""
    for left in reversed(range(ATTEMPTS)):
        seq = _next_seq(execution_id)
        if seq is None:
            return
        try:
            with transaction.atomic():
                ExecutionEvent.objects.create(execution_id=execution_id, seq=seq, type=REPAIR, data=data)
        except IntegrityError:
            if not left:
                raise
        else:
            return


def _next_seq(execution_id: uuid.UUID) -> int | None:
    """The number after the log's last; None where there is no such row, or it was repaired often enough."""
    repaired = Count("events", filter=Q(events__type=REPAIR))
    found = Execution.objects.filter(pk=execution_id).order_by().values("pk").annotate(last=Max("events__seq"), repaired=repaired).first()
    if found is None or found["repaired"] >= MOST_EVENTS:
        return None
    return (found["last"] or 0) + 1
