"""What ran and waited when, column by column: a day of a large fleet in few bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Left

from backlog import history
from backlog.models import Execution, Status

#: Characters of a message that are told.
PREVIEW_CHARACTERS = 40
#: What waits is told up to so many; the line itself tells all.
MOST_WAITING = 5_000
STATUSES = [str(value) for value in Status.values]
_COLUMNS = ("id", "agent_id", "slot_number", "status", "queued_at", "started_at", "completed_at", "error_code", "retry_of_id")
_STATUS_NUMBERS = {status: number for number, status in enumerate(STATUSES)}


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """Rows that go on, and whether more wait than are told."""

    rows: list[Any]
    truncated: bool


def lines_of(rows: QuerySet[Execution]) -> QuerySet[Any]:
    """The rows with only what a timeline shows of each."""
    return rows.annotate(preview=Left("message", PREVIEW_CHARACTERS)).values_list(*_COLUMNS, "preview", named=True)


def unfinished_of(agent_ids: Sequence[int], *, end: datetime) -> Unfinished:
    """What runs or waits, put in line before `end`; of those that wait the first `MOST_WAITING`."""
    running = list(lines_of(history.running_of(agent_ids, end=end)).order_by("queued_at", "id"))
    waiting = list(lines_of(history.waiting_of(agent_ids, end=end)).order_by("queued_at", "id")[: MOST_WAITING + 1])
    return Unfinished(rows=running + waiting[:MOST_WAITING], truncated=len(waiting) > MOST_WAITING)


def columns_of(rows: Iterable[Any], *, agent_ids: Sequence[int]) -> dict[str, list[Any]]:
    """A list for each thing told, all equally long; times in milliseconds, a start and an end from when it was put in line."""
    found = list(rows)
    numbers = {agent_id: number for number, agent_id in enumerate(agent_ids)}
    return {
        "id": [str(row.id) for row in found],
        "agent": [numbers[row.agent_id] for row in found],
        "slot_number": [row.slot_number for row in found],
        "status": [_STATUS_NUMBERS[row.status] for row in found],
        "queued_at": [_milliseconds(row.queued_at) for row in found],
        "started_after": [_after(row.queued_at, row.started_at) for row in found],
        "completed_after": [_after(row.queued_at, row.completed_at) for row in found],
        "error_code": [row.error_code or None for row in found],
        "retry_of": [None if row.retry_of_id is None else str(row.retry_of_id) for row in found],
        "message_preview": [row.preview for row in found],
    }


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _after(first: datetime, then: datetime | None) -> int | None:
    return None if then is None else max(0, _milliseconds(then) - _milliseconds(first))
