"""What the schema says of schedules."""

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from core.api.schema import LIST_PARAMETERS, header, operation

from ..serializers.controls import NothingIn
from ..serializers.schedules import FiringOut, ScheduleIn, ScheduleOut, SchedulePatchIn
from .tasks import AcceptedOut


class SchedulePageOut(serializers.Serializer):
    """A page of schedules."""

    results = ScheduleOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class FiringPageOut(serializers.Serializer):
    """A page of firings."""

    results = FiringOut(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


schedule_list = operation("schedule_list", answers={200: SchedulePageOut}, problems=(404,), parameters=LIST_PARAMETERS)
schedule_create = operation(
    "schedule_create",
    answers={201: OpenApiResponse(ScheduleOut, "It exists now.")},
    problems=(404, 409),
    body=ScheduleIn,
    parameters=[header("Location", "The schedule.", answers=[201])],
)
schedule_detail = operation("schedule_detail", answers={200: ScheduleOut}, problems=(404,))
schedule_update = operation("schedule_update", answers={200: ScheduleOut}, problems=(404, 409), body=SchedulePatchIn)
schedule_delete = operation(
    "schedule_delete", answers={204: OpenApiResponse(description="It is gone; what it has started goes on.")}, problems=(404,)
)
schedule_run = operation(
    "schedule_run",
    answers={202: OpenApiResponse(AcceptedOut, "It runs, or waits in line.")},
    problems=(404, 429),
    body=NothingIn,
    parameters=[header("Location", "The execution.", answers=[202])],
)
firing_list = operation("firing_list", answers={200: FiringPageOut}, problems=(404,), parameters=LIST_PARAMETERS)
