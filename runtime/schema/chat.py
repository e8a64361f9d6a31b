"""What the schema says of conversations."""

from drf_spectacular.utils import OpenApiResponse

from core.api.schema import header, operation

from ..serializers.chat import ChatIn
from ..serializers.executions import ExecutionOut

chat_turn = operation(
    "chat_turn",
    answers={200: OpenApiResponse(ExecutionOut, "The agent's answer; `session_id` is the conversation's.")},
    problems=(404, 409, 422, 429, 502, 504),
    body=ChatIn,
    parameters=[
        header("Idempotency-Key", "1 to 255 visible ASCII characters: the same turn again answers with the same execution."),
        header("X-Source-Agent", "The agent whose key this is; any other name is refused."),
        header("Idempotent-Replayed", "`true` where an earlier request with the same key made the execution.", answers=[200]),
    ],
)
