"""The slot board of an agent's page: who holds which slot, for how long, on whose behalf."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.db.models.functions import Left

from backlog.models import Execution
from capacity import selectors as capacity
from capacity.errors import SlotsUnavailable
from capacity.leases import Holder, Phase
from fleet import access
from fleet.models import Agent
from fleet.principals import Principal

PREVIEW_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class Place:
    """One place: a free one has no `execution_id`. `state`: free, running, starting, cancelling, lost, or ending.

    `ending` is a run that lets go of its slot just now. What a deleted agent of the name still holds has no `row`.
    """

    number: int
    state: str = "free"
    execution_id: uuid.UUID | None = None
    row: Execution | None = None
    preview: str = ""
    taken_at: datetime | None = None
    lease_ends_at: datetime | None = None
    may_cancel: bool = False
    may_release: bool = False

    @property
    def source(self) -> str:
        """Who submitted it."""
        return "" if self.row is None else self.row.source_name or self.row.source_kind


def board_of(principal: Principal, agent: Agent, *, limit: int) -> list[Place]:
    """Every place by number, also those above a lowered limit.

    While the slot store can't be asked: those that the database knows to be taken, without leases, and no free ones.
    """
    try:
        holders: list[Holder] | None = capacity.holders_for(agent)
    except SlotsUnavailable:
        holders = None
    rows = _rows(agent, [holder.execution_id for holder in holders or []])
    places = [_held(principal, agent, holder, rows.pop(holder.execution_id, None)) for holder in holders or []]
    places += [_by_row(principal, agent, row, known=holders is not None) for row in rows.values()]
    taken = {place.number for place in places}
    free = [] if holders is None else [Place(number=number) for number in range(1, limit + 1) if number not in taken]
    return sorted([*places, *free], key=lambda place: place.number)


def _rows(agent: Agent, execution_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Execution]:
    """The agent's rows that hold a slot by the store or by themselves, without their long texts."""
    held = Execution.objects.filter(Q(pk__in=list(execution_ids)) | Q(slot_token__isnull=False), agent=agent)
    columns = (
        "status", "agent_id", "slot_number", "slot_token", "source_kind", "source_name", "triggered_by", "submitted_by_id",
        "submitted_key_id", "granted_at", "started_at", "completed_at", "cancel_requested_at",
    )  # fmt: skip
    return {row.pk: row for row in held.only(*columns).annotate(preview=Left("message", PREVIEW_CHARACTERS))}


def _held(principal: Principal, agent: Agent, holder: Holder, row: Execution | None) -> Place:
    return Place(
        number=holder.number,
        state=_state(row, holder.phase),
        execution_id=holder.execution_id,
        row=row,
        preview=holder.message_preview if row is None else row.preview,  # type: ignore[attr-defined]
        taken_at=holder.taken_at,
        lease_ends_at=holder.lease_ends_at,
        may_cancel=_may_cancel(principal, agent, row),
        may_release=access.may(principal, access.Verb.OWN, agent),
    )


def _by_row(principal: Principal, agent: Agent, row: Execution, *, known: bool) -> Place:
    return Place(
        number=row.slot_number or 0,
        state="ending" if known and row.completed_at else _state(row, Phase.STARTED if row.started_at else Phase.GRANTED),
        execution_id=row.pk,
        row=row,
        preview=row.preview,  # type: ignore[attr-defined]
        taken_at=row.started_at or row.granted_at,
        may_cancel=_may_cancel(principal, agent, row),
        may_release=access.may(principal, access.Verb.OWN, agent),
    )


def _state(row: Execution | None, phase: Phase) -> str:
    if phase is Phase.LOST:
        return "lost"
    if row is not None and row.cancel_requested_at is not None:
        return "cancelling"
    return "running" if phase is Phase.STARTED else "starting"


def _may_cancel(principal: Principal, agent: Agent, row: Execution | None) -> bool:
    if row is None or row.status != "running" or row.cancel_requested_at is not None:
        return False
    return access.may_cancel(principal, agent, submitted_by_id=row.submitted_by_id, submitted_key_id=row.submitted_key_id)
