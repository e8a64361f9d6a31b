"""What the schema says of executions and their line."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from backlog.models import Status, Trigger
from core.api.schema import LIST_PARAMETERS, operation

from ..serializers.controls import NothingIn
from ..serializers.executions import CancelManyIn, EventOut, ExecutionOut, QueuedOut, RetryManyIn
from .tasks import RETRY_HEADERS, AcceptedOut


class ExecutionPageOut(serializers.Serializer):
    """A page of executions."""

    results = ExecutionOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class EventPageOut(serializers.Serializer):
    """A page of a run's log."""

    results = EventOut(many=True)
    next = serializers.URLField(allow_null=True)


class QueueOut(serializers.Serializer):
    """One agent's line."""

    agent_name = serializers.CharField()
    paused = serializers.BooleanField()
    depth = serializers.IntegerField()
    max_backlog_depth = serializers.IntegerField()
    results = QueuedOut(many=True)
    next = serializers.URLField(allow_null=True)


class CancelOut(serializers.Serializer):
    """What became of a cancel."""

    status = serializers.ChoiceField(choices=["cancelled", "cancelling"])


_FILTERS = [
    OpenApiParameter("status", str, enum=Status.values, many=True),
    OpenApiParameter("triggered_by", str, enum=Trigger.values),
    OpenApiParameter("session_id", {"type": "string", "format": "uuid"}),
    OpenApiParameter("since", {"type": "string", "format": "date-time"}, description="Made then or later."),
    OpenApiParameter("until", {"type": "string", "format": "date-time"}, description="Made before."),
    OpenApiParameter("error_code", str, description="How it failed."),
    OpenApiParameter("text", str, description="What the message has in it; sought in the newest 10 000 of what else matches."),
    OpenApiParameter("mine", str, enum=["true", "false"], description="`true`: only what the caller has submitted."),
    *LIST_PARAMETERS,
]
_WAIT = OpenApiParameter(
    "wait", {"type": "integer", "minimum": 0, "maximum": 60}, description="Answer once it has ended, at the latest after so many seconds."
)
_AFTER = OpenApiParameter("after", {"type": "integer", "minimum": 0}, description="The `seq` of the last entry known.")
_NEXT_ENTRY = OpenApiParameter(
    "wait",
    {"type": "integer", "minimum": 0, "maximum": 60},
    description="Answer once there is a further entry or it has ended, at the latest after so many seconds.",
)
execution_list = operation("execution_list", answers={200: ExecutionPageOut}, parameters=[OpenApiParameter("agent", str), *_FILTERS])
agent_execution_list = operation("agent_execution_list", answers={200: ExecutionPageOut}, problems=(404,), parameters=_FILTERS)


def execution_detail(name: str) -> Any:
    """One execution, by the path that is called `name`."""
    return operation(name, answers={200: ExecutionOut}, problems=(404,), parameters=[_WAIT])


def event_list(name: str) -> Any:
    """A run's log, by the path that is called `name`."""
    return operation(name, answers={200: EventPageOut}, problems=(404,), parameters=[_AFTER, _NEXT_ENTRY])


def execution_cancel(name: str) -> Any:
    """A cancel, by the path that is called `name`."""
    answers = {200: OpenApiResponse(CancelOut, "It is over."), 202: OpenApiResponse(CancelOut, "Its work is being stopped.")}
    return operation(name, answers=answers, problems=(404, 409), body=NothingIn)


class CancelledManyOut(serializers.Serializer):
    """What became of those that match."""

    cancelled = serializers.IntegerField(help_text="Over now.")
    cancelling = serializers.IntegerField(help_text="Their work is being stopped.")


class RetriedManyOut(serializers.Serializer):
    """What became of those that match."""

    retried = serializers.IntegerField(help_text="Submitted anew.")
    refused = serializers.IntegerField(help_text="Could not be: the line is full, the session closed, the request no longer valid.")
    left = serializers.IntegerField(help_text="Not tried yet: call again.")


execution_retry_many = operation("execution_retry_many", answers={200: RetriedManyOut}, body=RetryManyIn)
execution_cancel_many = operation("execution_cancel_many", answers={200: CancelledManyOut}, body=CancelManyIn)


def execution_retry(name: str) -> Any:
    """A retry, by the path that is called `name`."""
    return operation(
        name,
        answers={202: OpenApiResponse(AcceptedOut, "The new one runs, or waits in line.")},
        problems=(404, 409, 422, 429),
        body=NothingIn,
        parameters=RETRY_HEADERS,
    )


queue_detail = operation("queue_detail", answers={200: QueueOut}, problems=(404,), parameters=LIST_PARAMETERS)
