"""What the schema says of pauses, clears and releases."""

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from core.api.schema import operation

from ..serializers.controls import NothingIn, SlotReleaseIn


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
