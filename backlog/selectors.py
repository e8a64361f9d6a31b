"""Reads of execution rows."""

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Min, Q, QuerySet
from django.db.models.expressions import Exists, OuterRef, Subquery
from django.db.models.functions import JSONObject, Left, Now

from fleet.models import Agent, FleetSettings
from fleet.principals import Submitter

from .drafts import Draft, IdempotencyRequest
from .models import LINE, TERMINAL, Execution, ExecutionEvent, IdempotencyKey, Status
from .presence import attended

PREVIEW_CHARACTERS = 100


def startable(agent_id: int) -> QuerySet[Execution]:
    """The agent's rows that could start now but for a slot, first in line first."""
    return Execution.objects.filter(attended(), agent_id=agent_id, status=Status.QUEUED, startable=True).order_by(*LINE)


def next_in_place(agent_id: int) -> QuerySet[Execution]:
    """`startable` with `agent` and `ceiling`; empty while the agent or the fleet is paused, or the fleet has a cap.

    Under a cap a freed slot is the fleet's, not the agent's.
    """
    uncapped = FleetSettings.objects.filter(pk=1, paused=False, max_concurrent_tasks=None).values("max_parallel_tasks_ceiling")
    line = startable(agent_id).filter(agent__paused=False, agent__deleted_at=None).select_related("agent")
    return with_submitter(line.annotate(ceiling=Subquery(uncapped)).filter(ceiling__isnull=False))


def queue_of(agent_id: int) -> QuerySet[Execution]:
    """The agent's queued rows in line."""
    return Execution.objects.filter(agent_id=agent_id, status=Status.QUEUED).order_by(*LINE)


def with_head(agents: QuerySet[Agent]) -> QuerySet[Agent]:
    """The agents, each with `head`: `{id, timeout_seconds, preview, session_id}` of its first startable row, or None."""
    row = Execution.objects.filter(attended(), agent_id=OuterRef("pk"), status=Status.QUEUED, startable=True).order_by(*LINE)
    head = row.values(
        head=JSONObject(id="id", timeout_seconds="timeout_seconds", preview=Left("message", PREVIEW_CHARACTERS), session_id="session_id")
    )
    return agents.annotate(head=Subquery(head[:1]))


def agents_waiting() -> QuerySet[Agent]:
    """Living agents with startable rows that are not paused."""
    rows = Execution.objects.filter(attended(), agent_id=OuterRef("pk"), status=Status.QUEUED, startable=True)
    return Agent.objects.filter(Exists(rows), deleted_at=None, paused=False)


def agents_leaving() -> QuerySet[Agent]:
    """Deleted agents that have rows in line or in a slot, or something in the slot store."""
    # Each by an index of its own, whatever the table holds.
    queued = Execution.objects.filter(agent_id=OuterRef("pk"), status=Status.QUEUED)
    held = Execution.objects.filter(agent_id=OuterRef("pk"), slot_token__isnull=False)
    return Agent.objects.filter(Q(cleared_at=None) | Exists(queued) | Exists(held), deleted_at__isnull=False)


def depths(agent_ids: list[int]) -> dict[int, int]:
    """How many rows each agent has in line; agents with none are left out."""
    rows = Execution.objects.filter(agent_id__in=agent_ids, status=Status.QUEUED).order_by()
    return dict(rows.values_list("agent_id").annotate(queued=Count("*")))


def waiting_since(agent_ids: list[int]) -> dict[int, datetime]:
    """When the row that waits longest was put in each agent's line; agents with none are left out."""
    rows = Execution.objects.filter(agent_id__in=agent_ids, status=Status.QUEUED).order_by()
    return dict(rows.values_list("agent_id").annotate(since=Min("queued_at")))


def position_of(row: Execution) -> int | None:
    """The row's 1-based place in its agent's line; None when it doesn't wait."""
    return None if row.status != Status.QUEUED else ahead_of(row).count() + 1


def ahead_of(row: Execution) -> QuerySet[Execution]:
    """The queued rows of the same agent that come before `row`."""
    # Compared with what the database itself holds: SQLite compares moments as text, and stamps fewer digits than Django sends.
    queued_at = Subquery(Execution.objects.filter(pk=row.pk).values("queued_at")[:1])
    earlier = Q(queued_at__lt=queued_at) | Q(queued_at=queued_at, id__lt=row.id)
    same_rank = Q(front=row.front, priority=row.priority) & earlier
    higher = Q(front=row.front, priority__gt=row.priority)
    before = same_rank | higher if row.front else same_rank | higher | Q(front=True)
    return Execution.objects.filter(before, agent_id=row.agent_id, status=Status.QUEUED)


def unfinished_of_session(session_id: uuid.UUID) -> QuerySet[Execution]:
    """The session's rows that have not ended, or whose work is not known to be over."""
    return Execution.objects.filter(Q(status__in=(Status.QUEUED, Status.RUNNING)) | Q(slot_token__isnull=False), session_id=session_id)


def with_key_known(agents: QuerySet[Agent], *, asked: IdempotencyRequest | None) -> QuerySet[Agent]:
    """The agents, each knowing whether the caller's key was used there: `key_known` costs no query of its own."""
    if asked is None:
        return agents
    used = IdempotencyKey.objects.filter(caller=asked.caller, agent=OuterRef("pk"), key=asked.key)
    return agents.annotate(key_known=Exists(used))


def key_known(agent: Agent) -> bool:
    """Whether the key was used, for an agent read through `with_key_known`."""
    return bool(getattr(agent, "key_known", False))


def key_record(*, agent: Agent, asked: IdempotencyRequest) -> IdempotencyKey | None:
    """The caller's key for this agent with its execution."""
    mine = IdempotencyKey.objects.filter(caller=asked.caller, agent=agent, key=asked.key)
    return mine.annotate(age=Now() - F("created_at")).select_related("execution").first()


def key_taken(*, agent: Agent, draft: Draft) -> bool:
    """Whether the draft's idempotency key exists already."""
    asked = draft.idempotency
    return asked is not None and IdempotencyKey.objects.filter(caller=asked.caller, agent=agent, key=asked.key).exists()


def accepted_before(*, agent: Agent, draft: Draft) -> bool:
    """Whether the draft's id or its idempotency key is in use already."""
    return Execution.objects.filter(pk=draft.id).exists() or key_taken(agent=agent, draft=draft)


def waiting_longer_than(seconds: float) -> QuerySet[Execution]:
    """Queued rows that have waited longer than `seconds` on the database's clock."""
    return Execution.objects.filter(status=Status.QUEUED, queued_at__lt=Now() - timedelta(seconds=seconds))


def queued_ids(agent_id: int) -> list[uuid.UUID]:
    """The agent's rows in line, the last first: what may still start while they are gone through is what would have anyway."""
    return list(queue_of(agent_id).reverse().values_list("pk", flat=True))


def finished_before(age: timedelta) -> QuerySet[Execution]:
    """Rows that ended so long ago and hold no slot, about the oldest first."""
    ended = Execution.objects.filter(status__in=TERMINAL, slot_token=None, completed_at__lt=Now() - age)
    # It was made before it ended: the index of the newest finds the oldest.
    return ended.filter(created_at__lt=Now() - age).order_by("created_at", "id")


def holding() -> QuerySet[Execution]:
    """Rows that hold a slot."""
    return Execution.objects.filter(slot_token__isnull=False)


def holding_of(agent_id: int) -> QuerySet[Execution]:
    """The agent's rows that hold a slot."""
    return holding().filter(agent_id=agent_id)


def unfinished_of(agent_id: int) -> QuerySet[Execution]:
    """The agent's rows that wait, run, or are not known to be over."""
    return Execution.objects.filter(Q(status=Status.QUEUED) | Q(slot_token__isnull=False), agent_id=agent_id)


def with_submitter(executions: QuerySet[Execution]) -> QuerySet[Execution]:
    """The rows, each with what `submitter_of` reads, in the same query."""
    return executions.annotate(caller_active=F("submitted_by__is_active"), key_revoked_at=F("submitted_key__revoked_at"))


def submitter_of(row: Execution) -> Submitter:
    """Who submitted a row that was read through `with_submitter`, as they are now."""
    read: Any = row
    return Submitter(
        kind=row.source_kind, name=row.source_name, user_id=row.submitted_by_id, key_id=row.submitted_key_id,
        active=bool(read.caller_active) and read.key_revoked_at is None, link_id=row.public_link_id,
    )  # fmt: skip


def granted_not_started() -> QuerySet[Execution]:
    """Rows that hold a slot and wait for a worker."""
    return Execution.objects.filter(status=Status.RUNNING, started_at=None)


def watched(execution_ids: list[uuid.UUID]) -> dict[uuid.UUID, tuple[uuid.UUID | None, datetime | None, str]]:
    """`{id: (slot_token, cancel_requested_at, status)}` of the rows, in one query."""
    rows = Execution.objects.filter(pk__in=execution_ids).values_list("pk", "slot_token", "cancel_requested_at", "status")
    return {pk: (token, cancel, status) for pk, token, cancel, status in rows}


def finished(execution_ids: list[uuid.UUID]) -> set[uuid.UUID]:
    """Those of the executions that have ended."""
    return set(Execution.objects.filter(pk__in=execution_ids, status__in=TERMINAL).values_list("pk", flat=True))


def last_entries(execution_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, int]:
    """`{id: number of the last entry in its log}` of those of the executions that have not ended; 0 for an empty log."""
    last = ExecutionEvent.objects.filter(execution=OuterRef("pk")).order_by("-seq").values("seq")[:1]
    going_on = Execution.objects.filter(pk__in=list(execution_ids), status__in=(Status.QUEUED, Status.RUNNING))
    return {pk: seq or 0 for pk, seq in going_on.values_list("pk", Subquery(last))}


def head_of(agent: Agent) -> dict[str, Any] | None:
    """`head` of an agent read through `with_head`."""
    return agent.head  # type: ignore[attr-defined]


def carries(*, execution_id: uuid.UUID, token: uuid.UUID) -> bool:
    """Whether the row holds its slot under this token."""
    return Execution.objects.filter(pk=execution_id, slot_token=token).exists()


def database_now() -> datetime:
    """The database's clock."""
    now: datetime = FleetSettings.objects.annotate(now=Now()).values_list("now", flat=True).get(pk=1)
    return now


def of_other_agents(execution_ids: Collection[uuid.UUID], *, agent_id: int) -> set[uuid.UUID]:
    """Those of the executions that are another agent's."""
    return set(Execution.objects.filter(pk__in=execution_ids).exclude(agent=agent_id).values_list("pk", flat=True))
