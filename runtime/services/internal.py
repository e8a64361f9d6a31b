"""Tasks that other services of the house submit, under ids of their own."""

from dataclasses import fields
from typing import Any

from backlog.models import Execution
from fleet import access
from fleet.principals import Principal

from ..errors import IdempotencyMismatch
from .submit import Submitted, TaskRequest, submit_task

#: What of a request is in its row as it was asked for.
_SAME = {field.name for field in fields(TaskRequest)} & {field.name for field in Execution._meta.concrete_fields} | {"session_id"}


def execute_task(*, principal: Principal, name: str, request: TaskRequest) -> Submitted:
    """`submit_task` for a `system` key; with an `execution_id` that was used before, the execution it made, asked for the same.

    Raises as `submit_task` does, `AccessDenied` for anybody else, and `IdempotencyMismatch` where the id is another request's.
    """
    access.require_system(principal)
    submitted = submit_task(principal=principal, name=name, request=request)
    if submitted.replayed and request.execution_id is not None:
        _check_same(submitted, request)
    return submitted


def _check_same(submitted: Submitted, request: TaskRequest) -> None:
    row = Execution.objects.get(pk=submitted.execution_id)
    asked: dict[str, Any] = {name: getattr(request, name) for name in _SAME} | {"metadata": request.metadata or {}}
    if request.timeout_seconds is None:
        del asked["timeout_seconds"]
    if row.pk != request.execution_id or any(getattr(row, name) != value for name, value in asked.items()):
        raise IdempotencyMismatch("execution_id was used with a different request", execution_id=row.pk)
