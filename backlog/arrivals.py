"""A draft on its way into the line: whether there is room for it, who is before it, and the row that it becomes.

`services` calls these, each inside the transaction that holds the agent's row.
"""

from typing import Any

from django.db.models import Count, Q
from django.db.models.functions import Now

from fleet.models import Agent, Session

from . import presence, selectors
from .drafts import Draft
from .errors import BacklogFull, CapacityFull, QueueFull
from .models import Execution, IdempotencyKey, Status

#: What of a draft is no column of its row.
_NO_COLUMNS = ("idempotency", "attended", "opens_session")


def refusal(held: Agent, *, name: str, draft: Draft, limit: int, depth: int) -> CapacityFull | None:
    """Why the line doesn't take the draft; None where it does."""
    load: dict[str, Any] = {"max_parallel_tasks": limit, "queued": depth, "max_backlog_depth": held.max_backlog_depth}
    if draft.attended and (waiting := presence.waiting_turns(held.pk).count()) >= presence.MOST_WAITING:
        return QueueFull(agent=name, waiting=waiting, **load)
    return BacklogFull(agent=name, limit=limit, depth=depth, **load) if depth >= held.max_backlog_depth else None


def line_seen_by(*, agent: Agent, draft: Draft) -> dict[str, int]:
    """The agent's `depth`, and how many of its line are `ahead` of the draft."""
    before = Q(front=True) if draft.front else Q(front=True) | Q(priority__gte=draft.priority)
    if draft.front:
        before &= Q(priority__gte=draft.priority)
    queued = Execution.objects.filter(agent=agent, status=Status.QUEUED)
    return queued.aggregate(depth=Count("*"), ahead=Count("pk", filter=before))


def new_row(*, agent: Agent, draft: Draft, status: Status) -> Execution:
    """The draft's row, not saved."""
    columns = {name: value for name, value in vars(draft).items() if name not in _NO_COLUMNS}
    return Execution(agent=agent, agent_name=agent.name, status=status, seen_at=Now() if draft.attended else None, **columns)


def insert(*, row: Execution, draft: Draft) -> None:
    """Insert the row, and with it its idempotency key and the session that it opens."""
    if draft.opens_session and draft.submitted_by_id is not None:
        Session.objects.create(
            pk=row.session_id,
            agent_id=row.agent_id,
            owner_id=draft.submitted_by_id,
            key_id=draft.submitted_key_id,
            title=_title_of(draft.message),
        )
    row.save(force_insert=True)
    if (asked := draft.idempotency) is not None:
        IdempotencyKey.objects.create(
            caller=asked.caller, agent_id=row.agent_id, key=asked.key, body_digest=asked.body_digest, execution_id=row.pk
        )


def _title_of(message: str) -> str:
    return message.strip().splitlines()[0][: selectors.PREVIEW_CHARACTERS]
