"""What the schema says of spans of time."""

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from core.api.schema import header, operation

from ..serializers.timeline import TimelineOut

_PARAMETERS = [
    OpenApiParameter("from", {"type": "string", "format": "date-time"}, description="Left out: an hour before `to`."),
    OpenApiParameter("to", {"type": "string", "format": "date-time"}, description="Left out: now. At most 31 days after `from`."),
    OpenApiParameter("agent", str, many=True, description="Only these; names of agents that one may not see are passed over."),
    OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 20_000, "default": 5_000}, description="Ended ones a page."),
    OpenApiParameter("cursor", str, description="From `next`."),
    header("If-None-Match", "The tag known."),
    header("ETag", "Weak; of all but `server_time`.", answers=[200, 304]),
]
timeline_list = operation(
    "timeline_list",
    answers={200: TimelineOut, 304: OpenApiResponse(description="Nothing in it has changed.")},
    parameters=_PARAMETERS,
)
