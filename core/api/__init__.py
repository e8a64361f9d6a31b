"""HTTP for every room: problems out of errors, strict bodies and queries in, lists in pages, the view they share."""

from .fields import (
    BooleanField,
    CharField,
    ChoiceField,
    DateTimeField,
    IntegerField,
    ListField,
    ObjectField,
    StrictField,
    StrictSerializer,
    UUIDField,
)
from .pagination import KeysetPagination
from .parsers import StrictJSONParser
from .problems import ProblemAnswer, problem_for, problem_response
from .queries import choices, integer, moment, strict_query, text, unique_id
from .tags import expected_version, version_tag
from .views import ApiView, bad_request, forbidden, not_found, server_error, unknown_path

__all__ = [
    "ApiView",
    "BooleanField",
    "CharField",
    "ChoiceField",
    "DateTimeField",
    "IntegerField",
    "KeysetPagination",
    "ListField",
    "ObjectField",
    "ProblemAnswer",
    "StrictField",
    "StrictJSONParser",
    "StrictSerializer",
    "UUIDField",
    "bad_request",
    "choices",
    "expected_version",
    "forbidden",
    "integer",
    "moment",
    "not_found",
    "problem_for",
    "problem_response",
    "server_error",
    "strict_query",
    "text",
    "unique_id",
    "unknown_path",
    "version_tag",
]
