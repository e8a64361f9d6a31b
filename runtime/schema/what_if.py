"""What the schema says of what-if."""

from drf_spectacular.utils import OpenApiParameter

from core.api.schema import operation
from fleet.models import MAX_BACKLOG_DEPTH

from ..serializers.what_if import WhatIfOut
from ..what_if import Window

what_if = operation(
    "agent_what_if",
    answers={200: WhatIfOut},
    problems=(404, 429),
    parameters=[
        OpenApiParameter("limit", str, description="A number of slots, or a span of them such as 1-10; by default all up to the ceiling."),
        OpenApiParameter("window", str, enum=list(Window), default=Window.DAY.value),
        OpenApiParameter(
            "depth",
            {"type": "integer", "minimum": 0, "maximum": MAX_BACKLOG_DEPTH},
            description="How many may wait; by default as now.",
        ),
    ],
)
