"""Doing a finished execution again: a new one, by the one door, with everything that was asked for then."""

import uuid

from django.db import IntegrityError

from backlog.drafts import IdempotencyRequest
from backlog.models import TERMINAL, Execution, Trigger
from fleet import access
from fleet.errors import AgentNotFound
from fleet.models import OnFull
from fleet.principals import Principal, PrincipalKind

from ..errors import ExecutionNotFound, NotFinished
from ..selectors import execution_for
from .submit import Submitted, TaskRequest, submit_task


def retry_execution(
    *, principal: Principal, execution_id: uuid.UUID, agent_name: str | None = None, idempotency: IdempotencyRequest | None = None
) -> Submitted:
    """Submit the finished execution anew, as the caller's own; it waits in line where there is no slot.

    Raises `ExecutionNotFound`, `AgentNotFound` for one of a deleted agent, `NotFinished`, and what `submit_task` does. Its
    session must be open and the caller's own.
    """
    row = execution_for(principal=principal, execution_id=execution_id, agent_name=agent_name)
    if row.agent.deleted_at is not None:
        raise AgentNotFound
    access.require(principal, access.Verb.SUBMIT, row.agent)
    if row.status not in TERMINAL:
        raise NotFinished(execution_id=row.pk, status=row.status)
    try:
        return submit_task(principal=principal, name=row.agent_name, request=_again(row, principal=principal, idempotency=idempotency))
    except IntegrityError as error:
        if Execution.objects.filter(pk=row.pk).exists():
            raise
        # It was old enough to be deleted, and has been since it was read.
        raise ExecutionNotFound from error


def _again(row: Execution, *, principal: Principal, idempotency: IdempotencyRequest | None) -> TaskRequest:
    # The agent's limit may have been cut since, and a schedule may ask for more time than a person.
    limit = row.timeout_seconds if principal.kind is PrincipalKind.SYSTEM else row.agent.execution_timeout_seconds
    return TaskRequest(
        message=row.message,
        on_full=OnFull.QUEUE,
        timeout_seconds=min(row.timeout_seconds, limit),
        session_id=row.session_id,
        model=row.model,
        system_prompt=row.system_prompt,
        allowed_tools=row.allowed_tools,
        max_turns=row.max_turns,
        priority=row.priority,
        metadata=row.metadata,
        triggered_by=Trigger.RETRY,
        retry_of_id=row.pk,
        idempotency=idempotency,
    )
