"""Conversations: a turn is a task of a session, and waits in line only while its caller is there."""

import uuid

from backlog import presence
from backlog.drafts import IdempotencyRequest
from backlog.models import Execution, Status, Trigger
from fleet.models import OnFull
from fleet.principals import Principal

from .controls import cancel_as_seen
from .submit import Submitted, TaskRequest, submit_task


def take_turn(
    *, principal: Principal, name: str, message: str, session_id: uuid.UUID | None = None, idempotency: IdempotencyRequest | None = None
) -> Submitted:
    """The turn, accepted: it runs, or waits in line. Without a session a new one of the caller's is made with it.

    Raises as `submit_task` does, and `QueueFull` where too many turns of the agent wait.
    """
    request = TaskRequest(
        message=message, on_full=OnFull.QUEUE, triggered_by=Trigger.CHAT, idempotency=idempotency,
        session_id=session_id or uuid.uuid4(), opens_session=session_id is None, attended=True,
    )  # fmt: skip
    submitted = submit_task(principal=principal, name=name, request=request)
    if submitted.replayed:
        # The caller who was there before may have hung up a while ago.
        presence.note_seen([submitted.execution_id])
    return submitted


def leave(execution_id: uuid.UUID) -> bool:
    """A turn's caller has gone; whether it was in line and is cancelled now. One that holds a slot, or has begun, goes on.

    A turn with an idempotency key may have other callers, at other web processes as well: it is out of the line once none of
    them is seen any more.
    """
    row = Execution.objects.filter(pk=execution_id).only("status", "agent_id", "agent_name", "session_id").first()
    if row is None or row.status != Status.QUEUED or row.idempotency_keys.exists():
        return False
    return cancel_as_seen(row) == "cancelled"
