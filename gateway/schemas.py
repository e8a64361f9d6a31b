"""JSON schemas of serializers, made by what makes the OpenAPI document: they are written nowhere twice."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

_COMPONENTS, _DEFINITIONS = "#/components/schemas/", "#/$defs/"
#: Said for OpenAPI's tools alone.
_NOT_HERE = {"readOnly", "writeOnly", "x-spec-enum-id"}
#: Where the list of an enumeration's values begins that `enum` gives as well.
_LISTED = "* `"


def input_schema(serializer: type[BaseSerializer]) -> dict[str, Any]:
    """The schema of what a strict serializer takes: no more than its fields."""
    return _schema(serializer, direction="request") | {"additionalProperties": False}


def output_schema(*serializers: type[BaseSerializer]) -> dict[str, Any]:
    """The schema of an object that one of the serializers renders."""
    first, *others = [_schema(serializer, direction="response") for serializer in serializers]
    if not others:
        return first
    definitions: dict[str, Any] = {}
    for schema in (first, *others):
        definitions |= schema.pop("$defs", {})
    return {"type": "object", "anyOf": [first, *others]} | ({"$defs": definitions} if definitions else {})


def _schema(serializer: type[BaseSerializer], *, direction: str) -> dict[str, Any]:
    maker = AutoSchema()
    maker.registry, maker.method, maker.path, maker.view = ComponentRegistry(), "POST", "/", APIView(request=None)
    schema = dict(maker._map_serializer(serializer, direction))  # the one way in that takes a serializer without its view
    parts = maker.registry.build({}).get("schemas", {})
    found: dict[str, Any] = _plain(schema | ({"$defs": parts} if parts else {}))
    return found


def _plain(part: Any) -> Any:
    """Without what only OpenAPI knows."""
    if isinstance(part, list):
        return [_plain(inner) for inner in part]
    if not isinstance(part, dict):
        return part.replace(_COMPONENTS, _DEFINITIONS) if isinstance(part, str) else part
    kept = {key: _plain(inner) for key, inner in part.items() if key not in _NOT_HERE}
    if "enum" in kept and "description" in kept:
        kept["description"] = kept["description"].partition(_LISTED)[0].strip()
    return {key: inner for key, inner in kept.items() if key != "description" or inner}
