"""What the OpenAPI schema says of tasks, executions and capacity."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from backlog.models import Status, Trigger
from core.api.schema import LIST_PARAMETERS, operation

from .serializers import (
    CapacityIn,
    CapacityOut,
    CeilingIn,
    CeilingOut,
    EventOut,
    ExecutionOut,
    MeterOut,
    NothingIn,
    QueuedOut,
    SlotReleaseIn,
    TaskIn,
)


class AcceptedOut(serializers.Serializer):
    """A task that was taken."""

    status = serializers.ChoiceField(choices=["accepted", "queued"])
    execution_id = serializers.UUIDField()
    agent_name = serializers.CharField()
    async_mode = serializers.BooleanField()
    queue_position = serializers.IntegerField(required=False, help_text="1-based, of a queued one.")


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


class CapacityChangedOut(serializers.Serializer):
    """The settings that were sent, as they are now."""

    message = serializers.CharField()
    agent_name = serializers.CharField()
    max_parallel_tasks = serializers.IntegerField()
    max_backlog_depth = serializers.IntegerField(required=False)
    execution_timeout_seconds = serializers.IntegerField(required=False)


class PauseOut(serializers.Serializer):
    """Whether an agent is paused, by itself or with the whole fleet."""

    agent_name = serializers.CharField()
    paused = serializers.BooleanField()
    fleet_paused = serializers.BooleanField()


class FleetPauseOut(serializers.Serializer):
    """Whether all agents are paused."""

    paused = serializers.BooleanField()


class ClearedOut(serializers.Serializer):
    """How many were cancelled."""

    cleared = serializers.IntegerField()


class ReleaseOut(serializers.Serializer):
    """What became of a slot."""

    status = serializers.ChoiceField(choices=["released", "releasing"])
    execution_id = serializers.UUIDField()
    agent_name = serializers.CharField()
    limit_may_be_exceeded = serializers.BooleanField(help_text="After `force`: until the work has stopped.")
    message = serializers.CharField()


class SlotsOut(serializers.Serializer):
    """The load of every agent one may see."""

    agents = serializers.DictField(child=MeterOut())
    timestamp = serializers.DateTimeField()


def _header(name: str, description: str, *, answers: list[int] | None = None) -> OpenApiParameter:
    return OpenApiParameter(name, str, OpenApiParameter.HEADER, description=description, response=answers or False)


_REPLAYED = _header("Idempotent-Replayed", "`true` where an earlier request with the same key made the execution.", answers=[200, 202])
_SUBMIT_HEADERS = [
    _header(
        "Idempotency-Key", "1 to 255 visible ASCII characters, kept for a day: the same request again answers with the same execution."
    ),
    _header("Prefer", "`respond-async`, or `wait=N` (1..600): 202 after N seconds."),
    _header("X-Source-Agent", "The agent whose key this is; any other name is refused."),
    _header("Location", "The execution.", answers=[202]),
    _header("Preference-Applied", "The preference that was followed.", answers=[200, 202]),
    _REPLAYED,
]
_FILTERS = [
    OpenApiParameter("status", str, enum=Status.values, many=True),
    OpenApiParameter("triggered_by", str, enum=Trigger.values),
    OpenApiParameter("session_id", {"type": "string", "format": "uuid"}),
    OpenApiParameter("since", {"type": "string", "format": "date-time"}, description="Made then or later."),
    OpenApiParameter("until", {"type": "string", "format": "date-time"}, description="Made before."),
    *LIST_PARAMETERS,
]
_WAIT = OpenApiParameter(
    "wait", {"type": "integer", "minimum": 0, "maximum": 60}, description="Answer once it has ended, at the latest after so many seconds."
)
_AFTER = OpenApiParameter("after", {"type": "integer", "minimum": 0}, description="The `seq` of the last entry known.")
_SETTINGS_TAG = _header("ETag", "The version of the settings.", answers=[200])

task_submit = operation(
    "task_submit",
    answers={200: OpenApiResponse(ExecutionOut, "The result."), 202: OpenApiResponse(AcceptedOut, "It runs, or waits in line.")},
    problems=(404, 409, 422, 429, 502, 504),
    body=TaskIn,
    parameters=_SUBMIT_HEADERS,
)
execution_list = operation("execution_list", answers={200: ExecutionPageOut}, parameters=[OpenApiParameter("agent", str), *_FILTERS])
agent_execution_list = operation("agent_execution_list", answers={200: ExecutionPageOut}, problems=(404,), parameters=_FILTERS)


def execution_detail(name: str) -> Any:
    """One execution, by the path that is called `name`."""
    return operation(name, answers={200: ExecutionOut}, problems=(404,), parameters=[_WAIT])


def event_list(name: str) -> Any:
    """A run's log, by the path that is called `name`."""
    return operation(name, answers={200: EventPageOut}, problems=(404,), parameters=[_AFTER])


def execution_cancel(name: str) -> Any:
    """A cancel, by the path that is called `name`."""
    answers = {200: OpenApiResponse(CancelOut, "It is over."), 202: OpenApiResponse(CancelOut, "Its work is being stopped.")}
    return operation(name, answers=answers, problems=(404, 409), body=NothingIn)


queue_detail = operation("queue_detail", answers={200: QueueOut}, problems=(404,), parameters=LIST_PARAMETERS)
capacity_detail = operation("capacity_detail", answers={200: CapacityOut}, problems=(404,), parameters=[_SETTINGS_TAG])
capacity_update = operation(
    "capacity_update",
    answers={200: CapacityChangedOut},
    problems=(404, 412),
    body=CapacityIn,
    parameters=[_header("If-Match", "Change only this version of the settings."), _SETTINGS_TAG],
)
slots_list = operation(
    "slots_list",
    answers={200: SlotsOut, 304: OpenApiResponse(description="No agent's version has changed.")},
    parameters=[_header("If-None-Match", "The tag known."), _header("ETag", "Weak; of the names and versions.", answers=[200, 304])],
)
ceiling_detail = operation("ceiling_detail", answers={200: CeilingOut})
ceiling_update = operation("ceiling_update", answers={200: CeilingOut}, body=CeilingIn)

agent_pause = operation("agent_pause", answers={200: PauseOut}, problems=(404,), body=NothingIn)
agent_resume = operation("agent_resume", answers={200: PauseOut}, problems=(404,), body=NothingIn)
fleet_pause = operation("fleet_pause", answers={200: FleetPauseOut}, body=NothingIn)
fleet_resume = operation("fleet_resume", answers={200: FleetPauseOut}, body=NothingIn)
queue_clear = operation("queue_clear", answers={200: ClearedOut}, problems=(404,), body=NothingIn)
slot_release = operation(
    "slot_release",
    answers={
        200: OpenApiResponse(ReleaseOut, "The slot is free."),
        202: OpenApiResponse(ReleaseOut, "It is freed as soon as the work has stopped."),
    },
    problems=(404, 409),
    body=SlotReleaseIn,
)
