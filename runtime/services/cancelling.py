"""Cancelling many executions at once, of any agents: what waits, batch by batch, then what holds a slot."""

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models import QuerySet

from backlog import bulk
from backlog.models import LINE, TERMINAL, Execution, Status
from capacity.manager import CapacityManager
from core import events
from fleet import access
from fleet.principals import Principal

from ..events import ExecutionFinished
from ..selectors import executions_for, matching
from .controls import cancel_as_seen
from .lines import BATCH
from .moving_up import start_opened

manager = CapacityManager()


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """How many are over now, and of how many the work is being stopped."""

    cancelled: int
    cancelling: int


@dataclass(frozen=True)
class _Seen:
    """A row as it was when the call began."""

    id: uuid.UUID
    agent_id: int
    agent_name: str
    status: str


def cancellable(*, principal: Principal, lookups: dict[str, Any]) -> Cancelled:
    """What `cancel_matching` would do now: how many wait, and how many hold a slot."""
    counts = Counter(_unfinished(principal, lookups).order_by().values_list("status", flat=True))
    return Cancelled(cancelled=counts[Status.QUEUED], cancelling=counts[Status.RUNNING])


def cancel_matching(*, principal: Principal, lookups: dict[str, Any]) -> Cancelled:
    """Cancel those of the unfinished executions that match and that the principal may cancel; others are passed over.

    What is submitted after the call began stays. A line is gone through from its end, before anything that holds a slot: what
    starts meanwhile is what would have anyway, and no slot that this frees is given to a row that is about to be cancelled.
    """
    # By one look: a row that moves between two would be in neither.
    seen = _seen(_unfinished(principal, lookups).order_by("agent_id", *_reversed(LINE)))
    waiting = [one for one in seen if one.status == Status.QUEUED]
    gone = _cancel_waiting(waiting)
    # Those of the line that have started meanwhile are to be cancelled as well, unless only what waits was meant.
    rest = [one for one in seen if one.id not in gone and (one.status == Status.RUNNING or _means_running(lookups))]
    answers = [_cancel(one.id) for one in rest]
    for agent_id in dict.fromkeys(one.agent_id for one in waiting if one.id in gone):
        start_opened(partial(manager.withdraw, agent_id=agent_id, lease=None))
    return Cancelled(cancelled=len(gone) + answers.count("cancelled"), cancelling=answers.count("cancelling"))


def _unfinished(principal: Principal, lookups: dict[str, Any]) -> QuerySet[Execution]:
    mine = executions_for(principal).filter(access.cancellable_by(principal), status__in=(Status.QUEUED, Status.RUNNING))
    return matching(mine, lookups)


def _seen(rows: QuerySet[Execution]) -> list[_Seen]:
    return [_Seen(*row) for row in rows.values_list("pk", "agent_id", "agent_name", "status")]


def _reversed(order: Iterable[str]) -> list[str]:
    return [name[1:] if name.startswith("-") else f"-{name}" for name in order]


def _means_running(lookups: dict[str, Any]) -> bool:
    return Status.RUNNING in lookups.get("status__in", [Status.RUNNING])


def _cancel_waiting(waiting: list[_Seen]) -> set[uuid.UUID]:
    """Cancel those that are still in line, and tell who waits for them; returns them."""
    ended: set[uuid.UUID] = set()
    for agent_id, line in itertools.groupby(waiting, key=lambda one: one.agent_id):
        while batch := list(itertools.islice(line, BATCH)):
            gone = set(bulk.cancel_batch(agent_id=agent_id, execution_ids=[one.id for one in batch]))
            if gone:
                events.publish(*(ExecutionFinished(execution_id=one.id, agent=one.agent_name) for one in batch if one.id in gone))
            ended |= gone
    return ended


def _cancel(execution_id: uuid.UUID) -> str:
    """`cancelled`, `cancelling`, or "" for one that has ended otherwise; it may move between the look and the write."""
    while (row := Execution.objects.filter(pk=execution_id).first()) is not None and row.status not in TERMINAL:
        if (answer := cancel_as_seen(row)) is not None:
            return answer
    return ""
