"""What the schema says of public links."""

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from core.api.schema import header, operation

from ..serializers.public import PublicExecutionOut, PublicMessageIn


class PublicAcceptedOut(serializers.Serializer):
    """A visitor's message that was taken."""

    status = serializers.ChoiceField(choices=["accepted"])
    execution_id = serializers.UUIDField()
    async_mode = serializers.BooleanField()


public_chat = operation(
    "public_chat",
    answers={200: OpenApiResponse(PublicExecutionOut, "The answer."), 202: OpenApiResponse(PublicAcceptedOut, "It runs.")},
    problems=(404, 409, 429, 502, 504),
    body=PublicMessageIn,
    public=True,
    parameters=[
        header("Prefer", "`respond-async`, or `wait=N` (1..600): 202 after N seconds."),
        header("Location", "The execution, for this link's visitors.", answers=[202]),
        header("Preference-Applied", "The preference that was followed.", answers=[200, 202]),
    ],
)
public_execution = operation("public_execution", answers={200: PublicExecutionOut}, problems=(404,), public=True)
