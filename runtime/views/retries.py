"""Doing a finished execution again."""

import uuid

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from core import api

from .. import waiting
from ..schema import executions as schema
from ..serializers.controls import NothingIn
from ..serializers.executions import RetryManyIn
from ..services import retries, retrying
from .filters import lookups_of
from .preferences import idempotency_of
from .tasks import accepted


class RetryView(api.ApiView):
    """A finished execution, submitted anew."""

    @schema.execution_retry("execution_retry")
    def post(self, request: Request, execution_id: uuid.UUID, name: str | None = None) -> HttpResponse:
        """202 and where the new one is."""
        api.strict_query(request)
        NothingIn.read(request)
        submitted = retries.retry_execution(
            principal=self.principal,
            execution_id=execution_id,
            agent_name=name,
            # The same key for another execution is another request.
            idempotency=idempotency_of(request, principal=self.principal, kind=f"retry of {execution_id}"),
        )
        replayed = {"Idempotent-Replayed": "true"} if submitted.replayed else {}
        return waiting.sent(accepted(submitted, position=submitted.queue_position, headers=replayed, retry_of=str(execution_id)))


class RetryManyView(api.ApiView):
    """The retry of all that match."""

    @schema.execution_retry_many
    def post(self, request: Request) -> Response:
        """How many were submitted anew, refused, and are left; with `dry_run` how many would be tried, and nothing is done."""
        api.strict_query(request)
        asked = RetryManyIn.read(request)
        retry = retrying.retryable if asked.get("dry_run") else retrying.retry_matching
        done = retry(principal=self.principal, lookups=lookups_of(asked, principal=self.principal))
        return Response({"retried": done.retried, "refused": done.refused, "left": done.left})


@extend_schema_view(post=schema.execution_retry("agent_execution_retry"))
class AgentRetryView(RetryView):
    """A finished execution of the agent's, submitted anew."""
