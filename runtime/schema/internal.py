"""What the schema says of internal endpoints."""

from drf_spectacular.utils import OpenApiResponse

from core.api.schema import operation

from ..serializers.executions import ExecutionOut
from ..serializers.internal import InternalTaskIn
from .tasks import SUBMIT_HEADERS, AcceptedOut

internal_execute_task = operation(
    "internal_execute_task",
    answers={200: OpenApiResponse(ExecutionOut, "The result."), 202: OpenApiResponse(AcceptedOut, "It runs, or waits in line.")},
    problems=(404, 409, 422, 429, 502, 504),
    body=InternalTaskIn,
    parameters=[parameter for parameter in SUBMIT_HEADERS if parameter.name != "X-Source-Agent"],
)
