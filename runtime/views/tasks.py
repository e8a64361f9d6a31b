"""Submitting a task."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from backlog import selectors as backlog
from backlog.models import Execution, Trigger
from core import api
from core.asgi import Answer
from fleet.models import OnFull
from fleet.principals import Principal, PrincipalKind

from .. import waiting
from ..schema import tasks as schema
from ..serializers.tasks import TaskIn
from ..services import submit
from ..services.submit import Submitted, TaskRequest
from .preferences import Manner, idempotency_of, manner_of

#: A caller who waits for a result waits at most this many times the run's own limit.
WAIT_FACTOR = 2


class TaskView(api.ApiView):
    """Tasks for one agent."""

    @property
    def default_response_headers(self) -> dict[str, str]:
        """What is sent depends on `Prefer` (RFC 7240)."""
        return {**super().default_response_headers, "Vary": "Prefer"}

    @schema.task_submit
    def post(self, request: Request, name: str) -> HttpResponse:
        """202 at once, or the result: 200, or the failure as a problem."""
        api.strict_query(request)
        body = TaskIn.read(request)
        manner = manner_of(request, async_mode=body.pop("async_mode", None))
        task = _task(request, principal=self.principal, body=body, queues=manner.queues)
        submitted = submit.submit_task(principal=self.principal, name=name, request=task)
        return answer_to(request, submitted=submitted, manner=manner)


def _task(request: Request, *, principal: Principal, body: dict[str, Any], queues: bool) -> TaskRequest:
    on_full = body.pop("on_full", OnFull.QUEUE if queues else OnFull.REJECT)
    return TaskRequest(
        on_full=OnFull(on_full),
        triggered_by=Trigger.AGENT if principal.kind is PrincipalKind.AGENT else Trigger.MANUAL,
        idempotency=idempotency_of(request, principal=principal),
        **body,
    )


def answer_to(request: Request, *, submitted: Submitted, manner: Manner) -> HttpResponse:
    """The answer to a submit, in the manner asked for: at once, or when its result is there."""
    headers = _headers(submitted, manner)
    if manner.at_once:
        return waiting.sent(accepted(submitted, position=submitted.queue_position, headers=headers))
    late = partial(_late, submitted=submitted, manner=manner, headers=headers)
    return waiting.when_finished(
        request,
        execution_id=submitted.execution_id,
        seconds=manner.wait_seconds or WAIT_FACTOR * submitted.timeout_seconds,
        render=waiting.EndOfTask(execution_id=submitted.execution_id, late=late, headers=headers),
    )


def _headers(submitted: Submitted, manner: Manner) -> dict[str, str]:
    replayed = {"Idempotent-Replayed": "true"} if submitted.replayed else {}
    return replayed | ({"Preference-Applied": manner.applied} if manner.applied else {})


def _late(row: Execution, *, submitted: Submitted, manner: Manner, headers: Mapping[str, str]) -> Answer:
    if manner.wait_seconds is None:
        raise waiting.still_going(row, headers=headers)
    return accepted(submitted, position=backlog.position_of(row), headers=headers)


def accepted(submitted: Submitted, *, position: int | None, headers: Mapping[str, str], **more: str) -> Answer:
    """202 and where the execution is; `more` goes into the body."""
    body: dict[str, Any] = {
        "status": "accepted" if position is None else "queued",
        "execution_id": str(submitted.execution_id),
        "agent_name": submitted.agent.name,
        "async_mode": True,
    }
    if position is not None:
        body["queue_position"] = position
    body |= more
    return Answer.json(202, body, headers={**headers, "Location": waiting.location_of(submitted.execution_id)})
