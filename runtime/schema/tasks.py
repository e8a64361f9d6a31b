"""What the schema says of submitting a task."""

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from core.api.schema import header, operation

from ..serializers.executions import ExecutionOut
from ..serializers.tasks import TaskIn


class AcceptedOut(serializers.Serializer):
    """A task that was taken."""

    status = serializers.ChoiceField(choices=["accepted", "queued"])
    execution_id = serializers.UUIDField()
    agent_name = serializers.CharField()
    async_mode = serializers.BooleanField()
    queue_position = serializers.IntegerField(required=False, help_text="1-based, of a queued one.")
    retry_of = serializers.UUIDField(required=False, help_text="What a retry does again.")


_REPLAYED = header("Idempotent-Replayed", "`true` where an earlier request with the same key made the execution.", answers=[200, 202])
SUBMIT_HEADERS = [
    header("Idempotency-Key", "1 to 255 visible ASCII characters, kept for a day: the same request again answers with the same execution."),
    header("Prefer", "`respond-async`, or `wait=N` (1..600): 202 after N seconds; both: the first, with the result if it is in time."),
    header("X-Source-Agent", "The agent whose key this is; any other name is refused."),
    header("Location", "The execution.", answers=[202]),
    header("Preference-Applied", "The preference that was followed.", answers=[200, 202, 409, 502, 504]),
    _REPLAYED,
]
RETRY_HEADERS = [parameter for parameter in SUBMIT_HEADERS if parameter.name not in ("Prefer", "Preference-Applied")]
task_submit = operation(
    "task_submit",
    answers={200: OpenApiResponse(ExecutionOut, "The result."), 202: OpenApiResponse(AcceptedOut, "It runs, or waits in line.")},
    problems=(404, 409, 422, 429, 502, 504),
    body=TaskIn,
    parameters=SUBMIT_HEADERS,
)
