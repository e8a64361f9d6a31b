"""The request body: JSON as RFC 8259 has it, text that any database can store, no more than the allowed size."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any, NoReturn

from rest_framework.parsers import BaseParser

from core.conf import conf
from core.errors import BodyTooLarge, Invalid, InvalidBody

#: Deeper than any request needs, far from Python's own limit, so that nobody who walks a body has to think of it.
MAX_DEPTH = 64


class StrictJSONParser(BaseParser):
    """Parses `application/json`; whatever is wrong with a body is an error of the caller, never ours."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """The value sent; raises `BodyTooLarge`, `InvalidBody` or `Invalid`."""
        limit = conf.max_body_bytes
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise BodyTooLarge(limit=limit)
        return parse_json(body)


def parse_json(body: bytes) -> Any:
    """The value that `body` spells; raises `InvalidBody` where it spells none, `Invalid` where its text can't be stored."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidBody from error
    for part in _parts(value):
        if isinstance(part, str):
            check_text(part)
    return value


def check_text(text: str) -> None:
    """Raise `Invalid` for what no database stores: a NUL, half of a surrogate pair."""
    problem = text_problem(text)
    if problem:
        raise Invalid(f"Text must not contain {problem}")


def text_problem(text: str) -> str | None:
    """What keeps `text` from being stored, or None."""
    if "\0" in text:
        return "NUL characters"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "lone surrogates"
    return None


def _parts(value: Any) -> Iterator[Any]:
    """Every value and key in `value`, level by level: a body may be nested deeper than Python recurses."""
    level = [value]
    for _ in range(MAX_DEPTH):
        yield from level
        level = [inner for part in level for inner in _inside(part)]
        if not level:
            return
    raise InvalidBody(f"The request body must not be nested deeper than {MAX_DEPTH} levels")


def _inside(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [*part.keys(), *part.values()]
    return part if isinstance(part, list) else []


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
