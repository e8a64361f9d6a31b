"""What the schema says of limits and load."""

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from core.api.schema import header, operation

from ..serializers.capacity import CapacityIn, CapacityOut, CapIn, CapOut, CeilingIn, CeilingOut, MeterOut


class CapacityChangedOut(serializers.Serializer):
    """The settings that were sent, as they are now."""

    message = serializers.CharField()
    agent_name = serializers.CharField()
    max_parallel_tasks = serializers.IntegerField()
    max_backlog_depth = serializers.IntegerField(required=False)
    execution_timeout_seconds = serializers.IntegerField(required=False)
    override_until = serializers.DateTimeField(required=False, allow_null=True)


class SlotsOut(serializers.Serializer):
    """The load of every agent one may see."""

    agents = serializers.DictField(child=MeterOut())
    timestamp = serializers.DateTimeField()


_SETTINGS_TAG = header("ETag", "The version of the settings.", answers=[200])
_CHECKED = [header("If-Match", "Change only this version of the settings."), _SETTINGS_TAG]
capacity_detail = operation("capacity_detail", answers={200: CapacityOut}, problems=(404,), parameters=[_SETTINGS_TAG])
capacity_update = operation(
    "capacity_update",
    answers={200: CapacityChangedOut},
    problems=(404, 412),
    body=CapacityIn,
    parameters=_CHECKED,
)
slots_list = operation(
    "slots_list",
    answers={200: SlotsOut, 304: OpenApiResponse(description="No agent's version has changed.")},
    parameters=[header("If-None-Match", "The tag known."), header("ETag", "Weak; of the names and versions.", answers=[200, 304])],
)
ceiling_detail = operation("ceiling_detail", answers={200: CeilingOut}, parameters=[_SETTINGS_TAG])
ceiling_update = operation("ceiling_update", answers={200: CeilingOut}, problems=(412,), body=CeilingIn, parameters=_CHECKED)
cap_detail = operation("cap_detail", answers={200: CapOut}, parameters=[_SETTINGS_TAG])
cap_update = operation("cap_update", answers={200: CapOut}, problems=(412,), body=CapIn, parameters=_CHECKED)
