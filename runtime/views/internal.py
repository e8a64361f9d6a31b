"""Endpoints for the house's own services."""

from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from backlog.models import Trigger
from core import api
from fleet import access
from fleet.models import OnFull
from fleet.principals import Principal

from ..schema import internal as schema
from ..serializers.internal import InternalTaskIn
from ..services import internal
from ..services.submit import TaskRequest
from .preferences import idempotency_of, manner_of
from .tasks import answer_to


class ExecuteTaskView(api.ApiView):
    """Tasks of services that hold a `system` key."""

    @schema.internal_execute_task
    def post(self, request: Request) -> HttpResponse:
        """As for a task: 202 at once, or the result."""
        access.require_system(self.principal)
        api.strict_query(request)
        body = InternalTaskIn.read(request)
        manner = manner_of(request, async_mode=body.pop("async_mode", None))
        name = body.pop("agent_name")
        task = _task(request, principal=self.principal, body=body, queues=manner.queues)
        return answer_to(request, submitted=internal.execute_task(principal=self.principal, name=name, request=task), manner=manner)


def _task(request: Request, *, principal: Principal, body: dict[str, Any], queues: bool) -> TaskRequest:
    return TaskRequest(
        on_full=OnFull(body.pop("on_full", OnFull.QUEUE if queues else OnFull.REJECT)),
        triggered_by=Trigger(body.pop("triggered_by")),
        idempotency=idempotency_of(request, principal=principal, kind="internal"),
        **body,
    )
