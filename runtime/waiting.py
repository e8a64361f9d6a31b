"""Answers that wait for an execution's end, outside Django where the server can hold a call."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from rest_framework.request import Request

from backlog.models import TERMINAL, Execution, Status
from core.asgi import HOLD, HOLDS, Answer, Hold, Render
from core.errors import TrinityError

from . import held
from .errors import (
    AccessLost,
    AgentAuth,
    AgentDeleted,
    AgentError,
    AgentRateLimited,
    AgentUnreachable,
    Cancelled,
    Expired,
    InvalidRequest,
    LeaseLost,
    SessionEnded,
    Timeout,
    WaitTimeout,
    WorkerLost,
)
from .selectors import execution
from .serializers.executions import ExecutionOut
from .standing import standing

_FAILURES: dict[str, type[TrinityError]] = {
    kind.code: kind
    for kind in (
        AccessLost, AgentAuth, AgentError, AgentRateLimited, AgentUnreachable, Expired, InvalidRequest, LeaseLost, SessionEnded, Timeout,
        WorkerLost,
    )
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EndOfTask:
    """Renders the answer to a caller who waits for a task's result."""

    execution_id: uuid.UUID
    #: The answer to a caller whose wait ends before the task does.
    late: Callable[[Execution], Answer]
    headers: Mapping[str, str] = field(default_factory=dict)
    #: What those who are told nothing of the inside get: another body, and no words of the agent's about a failure.
    body: Callable[[Execution], dict[str, Any]] | None = None

    def __call__(self, *, timed_out: bool) -> Answer:
        """200 with a success; raises a failure as its error. The row decides, not `timed_out`: they may race."""
        row = execution(self.execution_id)
        if row.status not in TERMINAL:
            return self.late(row)
        if row.status != Status.SUCCESS:
            raise failure(row, headers=self.headers, in_its_words=self.body is None)
        return Answer.json(200, (self.body or rendered)(row), headers=self.headers)


@dataclass(frozen=True, kw_only=True)
class StateOfExecution:
    """Renders an execution as it is when the wait is over, however that was."""

    execution_id: uuid.UUID

    def __call__(self, *, timed_out: bool) -> Answer:
        """200 with the execution."""
        return Answer.json(200, rendered(execution(self.execution_id)))


def when_finished(
    request: Request, *, execution_id: uuid.UUID, seconds: float, render: Render, gone: Callable[[], object] | None = None
) -> HttpResponse:
    """`render`'s answer once the execution has ended or after `seconds`; at once where no server holds the call.

    With `gone` the execution waits only while its caller does: that they do is recorded, and `gone` called when they hang up.
    """
    return _later(request, Hold(key=str(execution_id), seconds=seconds, render=render, attended=gone is not None, gone=gone))


def when_logged(request: Request, *, execution_id: uuid.UUID, after: int, seconds: float, render: Render) -> HttpResponse:
    """`render`'s answer once the execution's log goes on behind entry `after`, or as `when_finished`."""
    return _later(request, Hold(key=held.entry_behind(execution_id, after), seconds=seconds, render=render, announced=False))


def _later(request: Request, hold: Hold) -> HttpResponse:
    # Django's META is the server's own dictionary.
    environ = request.META
    if environ.get(HOLDS):
        environ[HOLD] = hold
        return HttpResponse()
    return sent(hold.render(timed_out=True))


def sent(answer: Answer) -> HttpResponse:
    """The answer for Django."""
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))


def rendered(row: Execution) -> dict[str, Any]:
    """The execution's body."""
    return dict(ExecutionOut(row, context={"standings": {row.pk: standing(row)}}).data)


def location_of(execution_id: uuid.UUID) -> str:
    """Where the execution is read."""
    return reverse("runtime:execution-detail", args=[execution_id])


def failure(row: Execution, *, headers: Mapping[str, str], in_its_words: bool = True) -> TrinityError:
    """The error that an execution which ended without success is to whoever waited for it; in our own sentence if so asked."""
    if row.status == Status.CANCELLED:
        kind = AgentDeleted if row.error_code == AgentDeleted.code else Cancelled
        return kind(execution_id=row.pk, headers=headers)
    sentence = row.error if in_its_words and row.error else None
    return _FAILURES.get(row.error_code, AgentError)(sentence, execution_id=row.pk, headers=headers)


def still_going(row: Execution, *, headers: Mapping[str, str]) -> TrinityError:
    """The error of a wait that ran out."""
    return WaitTimeout(execution_id=row.pk, status=row.status, headers={**headers, "Location": location_of(row.pk)})
