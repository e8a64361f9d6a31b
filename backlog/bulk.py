"""Changes of many rows at once: in batches, each a short transaction, each row only if it still is what was seen."""

import uuid
from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from fleet.models import Agent

from . import selectors
from .models import TERMINAL, Execution, ExecutionEvent, IdempotencyKey, Status
from .services import let_next_of_session_start


def cancel_batch(*, agent_id: int, execution_ids: Sequence[uuid.UUID], error_code: str = "cancelled") -> list[uuid.UUID]:
    """Cancel those of the agent's rows that are still in line; returns them.

    Under the agent's row, where enqueue decides `startable`; whoever comes next in a session that stays is made so.
    """
    with transaction.atomic():
        Agent.objects.select_for_update(no_key=True).values_list("pk").get(pk=agent_id)
        queued = Execution.objects.filter(pk__in=execution_ids, agent_id=agent_id, status=Status.QUEUED)
        # Held, so that none is claimed between the look and the write.
        found: list[tuple[uuid.UUID, uuid.UUID | None]] = list(queued.select_for_update(no_key=True).values_list("pk", "session_id"))
        queued.filter(pk__in=[pk for pk, _ in found]).update(
            status=Status.CANCELLED, error_code=error_code, cancel_requested_at=Now(), completed_at=Now()
        )
        for session_id in dict.fromkeys(session_id for _, session_id in found if session_id is not None):
            let_next_of_session_start(session_id)
    return [pk for pk, _ in found]


def forget_finished(*, older_than: timedelta, most: int, most_events: int = 2000) -> tuple[int, bool]:
    """Delete at most `most` executions that ended so long ago, with their keys; never one that still holds a slot.

    Their events go first, at most `most_events` in one call: a run may have written thousands. Returns how many executions
    went, and whether there may be more to delete.
    """
    found = list(selectors.finished_before(older_than).values_list("pk", flat=True)[:most])
    if _forget_events(found, most=most_events) == most_events:
        return 0, True
    with transaction.atomic():
        # Of the rows only their ids are read: a response may be megabytes.
        Execution.objects.filter(pk__in=found, status__in=TERMINAL, slot_token=None).only("pk").delete()
    return len(found), len(found) == most


def _forget_events(execution_ids: Sequence[uuid.UUID], *, most: int) -> int:
    found = ExecutionEvent.objects.filter(execution_id__in=execution_ids).order_by().values_list("pk", flat=True)[:most]
    return ExecutionEvent.objects.filter(pk__in=list(found)).delete()[0]


def forget_keys(*, older_than: timedelta, most: int) -> int:
    """Delete at most `most` idempotency keys that no longer count; returns how many."""
    found = IdempotencyKey.objects.filter(created_at__lt=Now() - older_than).order_by("pk").values_list("pk", flat=True)[:most]
    return IdempotencyKey.objects.filter(pk__in=list(found)).delete()[0]
