"""Runs whose worker is lost: fenced when their lease ends, told to end, and their slots given to the line when they have."""

import threading
import uuid
from datetime import datetime, timedelta

import structlog
from django.db import Error, connection
from django.db.models.functions import Now

from backlog import selectors as rows
from backlog import services as backlog
from backlog.models import TERMINAL, Execution
from capacity import repairs
from capacity.errors import SlotsUnavailable
from capacity.leases import HARD_LIMIT_MARGIN_SECONDS, Lease, LostHolder, Phase
from capacity.manager import CapacityManager
from core.conf import conf
from fleet import reach
from fleet.models import RuntimeKind

from ... import dispatch
from .. import broker
from ..asking import ask_to_end
from ..keeper import margin_seconds
from .journal import Kind, note
from .steps import each, free, lease_of, light, retire, row_of

log = structlog.get_logger(__name__)
manager = CapacityManager()

#: Agents asked at once by this process itself, where no worker has a thread for it.
MOST_ASKED_HERE = 8
_asking_here = threading.BoundedSemaphore(MOST_ASKED_HERE)


def repair_lost() -> None:
    """Fence the rows of holders whose lease ended, and free the slots of those whose work is over."""
    each(manager.reclaim_stale(), _retire_lost)
    settle_fenced()


def _retire_lost(holder: LostHolder) -> None:
    lease = Lease(agent=holder.agent, execution_id=holder.execution_id, token=holder.token, timeout_seconds=0, number=holder.number)
    row = row_of(holder.execution_id)
    if row is not None and row.slot_token == holder.token:
        retire(row, lease, slot="lost")
    elif free(row, lease):
        note(Kind.SLOT_WITHOUT_ROW, lease, slot="lost", slot_number=lease.number)


# -- Fenced: until the work is over ------------------------------------------------------------------------------------


def settle_fenced() -> None:
    """Free the slots of ended rows whose work can't go on any more; ask the agents of the others to end it, less and less often.

    A row is fenced by repair, or by whoever else ends it while its work goes on. From then on it is told to end: a worker
    that lives sees it within a second, an agent is asked, and a command's supervisor knows when its lease ends.
    """
    began_as = reach.kind_of_start(agent="agent", started_at="started_at")
    fenced = list(light(rows.holding().filter(status__in=TERMINAL)).annotate(now=Now(), began_as=began_as))
    if not fenced:
        return
    # In this order: what is told from a moment after the fence has been told long enough, and a slot that is gone by then
    # can be renewed no more.
    told = repairs.endings([lease_of(row).token for row in fenced])
    phases = {(holder.execution_id, holder.token): holder.phase for holder in manager.holders()}
    each(zip(fenced, told, strict=True), lambda found: _settle(*found, phase=phases.get((found[0].pk, lease_of(found[0]).token))))


def _settle(row: Execution, ending: repairs.Ending, *, phase: Phase | None) -> None:
    lease = lease_of(row)
    if over_by := _over_by(row, ending, phase=phase):
        _let_go(row, lease, by=over_by)
    elif ending.due and _kind(row) == RuntimeKind.HTTP:
        _ask(lease, told_seconds=round(ending.told_seconds))


def _over_by(row: Execution, ending: repairs.Ending, *, phase: Phase | None) -> str:
    """By what a fenced run's work can't go on; "" where it may.

    A command's supervisor ends it before its lease does; but where a worker could only ask the row, up to a margin after the
    fence. Half a margin more is for dying. Of a slot that vanished the lease is not known: it may have been renewed just
    before. Any other agent has to say that it is over, which `terminate_lost` asks; the hard limit is the end of every run.
    """
    if row.started_at is None or _now(row) > row.started_at + timedelta(seconds=row.timeout_seconds + HARD_LIMIT_MARGIN_SECONDS):
        return "hard_limit"
    if _kind(row) == RuntimeKind.HTTP:
        return ""
    if phase == Phase.LOST:
        return "lease" if ending.told_seconds > 1.5 * margin_seconds() else ""
    return "lease" if phase is None and ending.told_seconds > conf.lease_seconds else ""


def _let_go(row: Execution, lease: Lease, *, by: str) -> None:
    """Row, then slot, then the line; told last, for in between the slot is one without a row."""
    cleared = backlog.clear_token(execution_id=row.pk, token=lease.token, session_id=row.session_id)
    free(row, lease)
    if cleared:
        note(Kind.SLOT_GIVEN_BACK, lease, by=by, slot_number=lease.number)


def _kind(row: Execution) -> str:
    """The kind of agent that has the work."""
    kind: str = row.began_as  # type: ignore[attr-defined]
    return kind


def _now(row: Execution) -> datetime:
    """The database's clock when the row was read."""
    now: datetime = row.now  # type: ignore[attr-defined]
    return now


# -- Asking an agent ---------------------------------------------------------------------------------------------------


def _ask(lease: Lease, *, told_seconds: int) -> None:
    """Have the agent asked, by a worker with a free thread, or else by a thread of this process: never by this pass itself."""
    note(Kind.ASKED_TO_END, lease, told_seconds=told_seconds)
    if broker.waiting_messages() == 0 and dispatch.terminate(lease):
        return
    if _asking_here.acquire(blocking=False):
        threading.Thread(target=_asked_here, args=[lease], name="terminate", daemon=True).start()


def _asked_here(lease: Lease) -> None:
    try:
        terminate_lost(execution_id=lease.execution_id, token=lease.token)
    except (Error, SlotsUnavailable) as error:
        log.warning("repair.ask_failed", execution_id=str(lease.execution_id), error=str(error))
    except Exception:
        log.exception("repair.ask_broke", execution_id=str(lease.execution_id))
    finally:
        connection.close()
        _asking_here.release()


def terminate_lost(*, execution_id: uuid.UUID, token: uuid.UUID) -> None:
    """Ask the agent of a fenced run to end it; once it has, free the slot."""
    fenced = Execution.objects.filter(pk=execution_id, slot_token=token, status__in=TERMINAL)
    row = fenced.select_related("agent").defer("message", "response").first()
    if row is None:
        return
    if ask_to_end(row, token=token):
        _let_go(row, lease_of(row), by="agent")
