"""Rows and slots compared, in both directions."""

import uuid
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now

from backlog import selectors as rows
from backlog.models import TERMINAL, Execution
from capacity.leases import FleetHolder, Lease, Phase
from capacity.manager import CapacityManager
from core.conf import conf

from .journal import Kind, note
from .steps import each, free, lease_of, light, retire, row_of

manager = CapacityManager()

#: An ended run's slot is left to its worker for so long. Repair taking it first would do no harm, but undo a claim in place.
GIVING_SECONDS = 2.0


def compare() -> None:
    """Retire rows whose slot is gone, free slots whose row is.

    One look at each while all is well. Rows are read before the gate, so that the slot of a row is seen there; what has a
    slot but no row is therefore looked for once more, in the rows as they are by then.
    """
    seen = list(rows.holding().annotate(now=Now()).values_list("pk", "slot_token", "granted_at", "started_at", "now"))
    holders = manager.holders()
    held = {(holder.execution_id, holder.token) for holder in holders}
    without_slot = [
        (pk, token, started_at)
        for pk, token, granted_at, started_at, now in seen
        if token and (pk, token) not in held and _is_old(granted_at, now)
    ]
    each(without_slot, _retire_gone)
    tokens = {pk: token for pk, token, *_ in seen}
    _free_rowless([holder for holder in holders if tokens.get(holder.execution_id) != holder.token])


def _is_old(granted_at: datetime | None, now: datetime) -> bool:
    """Whether a claim in place has had the time to move its slot."""
    return granted_at is None or now - granted_at > timedelta(seconds=conf.orphan_seconds)


def _retire_gone(found: tuple[uuid.UUID, uuid.UUID, datetime | None]) -> None:
    execution_id, token, started_at = found
    row = row_of(execution_id)
    # One claimed in place that has started since has been given its slot since, too.
    if row is not None and row.slot_token == token and row.started_at == started_at:
        retire(row, lease_of(row), slot="gone")


def _rows_of(holders: list[FleetHolder]) -> QuerySet[Execution]:
    return light(Execution.objects.filter(pk__in=[holder.execution_id for holder in holders])).annotate(now=Now())


def _gives_back(row: Execution) -> bool:
    """Whether its run has ended just now: its worker is about to give the slot back, or to hand it on."""
    now: datetime = row.now  # type: ignore[attr-defined]
    return row.completed_at is not None and now - row.completed_at < timedelta(seconds=GIVING_SECONDS)


def _free_rowless(suspects: list[FleetHolder]) -> None:
    found = {row.pk: row for row in _rows_of(suspects)} if suspects else {}

    def free_rowless(holder: FleetHolder) -> None:
        row = found.get(holder.execution_id)
        if row is not None and (row.slot_token == holder.token or _gives_back(row)):
            return
        has_ended = row is not None and row.status in TERMINAL
        if not has_ended and holder.phase != Phase.LOST and holder.age_seconds <= conf.orphan_seconds:
            return
        lease = Lease(agent=holder.agent, execution_id=holder.execution_id, token=holder.token, timeout_seconds=0, number=holder.number)
        # Only as it was seen: a request that was long at inserting its row may have done so, and a worker have begun it.
        if free(row, lease, phase=None if has_ended else holder.phase):
            seen = "none" if row is None else row.status
            note(Kind.SLOT_WITHOUT_ROW, lease, slot=holder.phase.value, slot_number=holder.number, row=seen)

    each(suspects, free_rowless)
