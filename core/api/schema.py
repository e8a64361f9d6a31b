"""What the OpenAPI schema says of every endpoint alike: its name, its problems, the one of its two paths that is shown."""

from collections.abc import Callable, Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers

from .pagination import MAX_LIMIT
from .problems import MEDIA_TYPE, title_of

#: Whatever is asked for: not understood, a bug of ours, a store out of reach.
_ALWAYS = (400, 500, 503)
#: Where credentials are needed: none or wrong ones, and those that may not.
_WITH_CREDENTIALS = (401, 403)
_WITH_BODY = (413, 415)

Endpoint = tuple[str, str, str, Callable[..., Any]]


class FieldProblemOut(serializers.Serializer):
    """What is wrong with one field of a body."""

    pointer = serializers.CharField()
    code = serializers.CharField()
    detail = serializers.CharField()


class ProblemOut(serializers.Serializer):
    """An error (RFC 9457); some carry more members."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField(help_text="Stable; `detail` is for people.")
    errors = FieldProblemOut(many=True, required=False)  # type: ignore[assignment]  # declared, it is no attribute of the class
    execution_id = serializers.UUIDField(required=False)


LIST_PARAMETERS = [
    OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 50}, description="Rows a page."),
    OpenApiParameter("cursor", str, description="From `next` or `previous`."),
]
LINK = serializers.URLField(allow_null=True)


def operation(
    name: str, *, answers: Mapping[int, Any], problems: tuple[int, ...] = (), body: Any = None, public: bool = False, **more: Any
) -> Callable[..., Any]:
    """Decorates a view's method: what it answers by status, its problems among them."""
    statuses = sorted({*_ALWAYS, *problems, *(() if public else _WITH_CREDENTIALS), *(() if body is None else _WITH_BODY)})
    refused = {(status, MEDIA_TYPE): OpenApiResponse(ProblemOut, title_of(status)) for status in statuses}
    if public:
        more["auth"] = []
    return extend_schema(operation_id=name, request=body, responses={**answers, **refused}, **more)


def header(name: str, description: str, *, answers: list[int] | None = None) -> OpenApiParameter:
    """A header of requests, or of the answers with these statuses."""
    return OpenApiParameter(name, str, OpenApiParameter.HEADER, description=description, response=answers or False)


def one_path_each(endpoints: list[Endpoint]) -> list[Endpoint]:
    """Without the second form of each path (`core.urls.both`)."""
    return [endpoint for endpoint in endpoints if not getattr(endpoint[3], "second_form", False)]
