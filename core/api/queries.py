"""The query string: named parameters with a type each, and no others."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from rest_framework.request import Request

from core.errors import Invalid

from .fields import parse_moment, parse_uuid, shortened
from .parsers import text_problem

#: Takes a parameter's name and its values as sent; returns what they mean or raises `Invalid`.
Reader = Callable[[str, list[str]], Any]


class UnknownParameter(Invalid):
    """Unknown query parameter '{name}'; {listed}"""


def strict_query(request: Request | HttpRequest, allowed: Mapping[str, Reader] | Iterable[str] = ()) -> dict[str, Any]:
    """`{name: value}` of the parameters that were sent.

    `allowed` names a reader for each, or only the names: those are texts. Any other parameter is `UnknownParameter`.
    """
    readers = dict(allowed) if isinstance(allowed, Mapping) else dict.fromkeys(allowed, text())
    values = {}
    for name, sent in request.GET.lists():
        if name not in readers:
            listed = f"the valid ones are {', '.join(readers)}" if readers else "none are expected here"
            raise UnknownParameter(name=shortened(name), listed=listed)
        values[name] = readers[name](name, [str(one) for one in sent])
    return values


def text(*, max_length: int = 500) -> Reader:
    """Text of at most `max_length` characters."""

    def read(name: str, sent: list[str]) -> str:
        value = _one(name, sent)
        if len(value) > max_length or text_problem(value):
            raise Invalid(f"{name} must be text of at most {max_length} characters")
        return value

    return read


def integer(low: int, high: int) -> Reader:
    """A whole number between the bounds, in plain digits."""

    def read(name: str, sent: list[str]) -> int:
        value = _one(name, sent)
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and low <= int(value) <= high):
            raise Invalid(f"{name} must be an integer between {low} and {high}")
        return int(value)

    return read


def choices(values: Iterable[str], *, repeat: bool = False) -> Reader:
    """One of `values`; a list of them with `repeat`, where the parameter may be given several times."""
    known = [str(value) for value in values]

    def read(name: str, sent: list[str]) -> str | list[str]:
        found = sent if repeat else [_one(name, sent)]
        if any(value not in known for value in found):
            raise Invalid(f"{name} must be one of {', '.join(known)}")
        return found if repeat else found[0]

    return read


def moment() -> Reader:
    """A time with its offset, as RFC 3339 has it."""

    def read(name: str, sent: list[str]) -> datetime:
        value = parse_moment(_one(name, sent))
        if value is None:
            raise Invalid(f"{name} must be a time such as 2030-01-31T12:00:00Z")
        return value

    return read


def unique_id() -> Reader:
    """A UUID."""

    def read(name: str, sent: list[str]) -> uuid.UUID:
        value = parse_uuid(_one(name, sent))
        if value is None:
            raise Invalid(f"{name} must be a UUID")
        return value

    return read


def _one(name: str, sent: list[str]) -> str:
    if len(sent) != 1:
        raise Invalid(f"{name} may be given only once")
    return sent[0]
