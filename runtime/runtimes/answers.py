"""What agents answer, made fit to be kept: no NUL and no half characters, which PostgreSQL can't hold, no NaN."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from .base import Result

#: Longest `error` of an execution.
MAX_ERROR_CHARACTERS = 4000
MAX_TOKENS = 2**63 - 1
MAX_COST_USD = 10**8 - 1
#: Deeper than this no database and no encoder is asked to go.
MAX_DEPTH = 100
#: Most values of one object. Each costs fifty times its two bytes once it is parsed, and the parser lets no other thread run.
MAX_PARTS = 100_000
#: What an agent says of a task that came to nothing although it could answer.
FAILED = ("failed", "error")


def clean_text(text: str) -> str:
    """`text` without NUL; lone surrogates replaced."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def decode(data: bytes) -> str:
    """The clean text of `data`; what isn't UTF-8 is replaced."""
    return clean_text(data.decode("utf-8", "replace"))


def parse_object(text: str | bytes) -> dict[str, Any] | None:
    """The clean JSON object that `text` is, or None: also for NaN, infinities, and more values or depth than is reasonable."""
    try:
        if isinstance(text, bytes):
            text = text.decode()
        if len(text) > MAX_PARTS and _has_too_many_parts(text):
            return None
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        return _clean(value, MAX_DEPTH) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def result_of(fields: Mapping[str, Any]) -> Result:
    """The outcome that an agent's answer, or the last `result` line of its output, stands for."""
    usage = usage_of(fields.get("usage")) or usage_of(fields.get("metadata"))
    if fields.get("status") in FAILED:
        said = next((fields[name] for name in ("error", "detail", "response") if isinstance(fields.get(name), str)), "").strip()
        return Result(error_code="agent_error", error=said[:MAX_ERROR_CHARACTERS] or "The agent reported a failure", usage=usage)
    if not isinstance(fields.get("response"), str):
        return Result(error_code="agent_error", error="The agent's answer has no response", usage=usage)
    return Result(response=fields["response"], usage=usage)


def usage_of(values: object) -> dict[str, Any] | None:
    """`{input_tokens, output_tokens, cost_usd}` of an agent's report, null for what it leaves out; None for no report."""
    if not isinstance(values, Mapping):
        return None
    usage = {
        "input_tokens": _whole(values.get("input_tokens")),
        "output_tokens": _whole(values.get("output_tokens")),
        "cost_usd": _amount(values.get("cost_usd")),
    }
    return usage if any(value is not None for value in usage.values()) else None


def tail(text: str) -> str:
    """The end of `text`, short enough for an execution's `error`."""
    return text.strip()[-MAX_ERROR_CHARACTERS:]


def _has_too_many_parts(text: str) -> bool:
    """Whether it opens or goes on with more values than are taken; looks at what is outside its strings only."""
    parts = position = 0
    while parts <= MAX_PARTS and (mark := _MARK.search(text, position)):
        position = mark.end()
        if mark[0] == '"':
            position = _STRING.raw_decode(text, mark.start())[1]
        else:
            parts += 1
    return parts > MAX_PARTS


_STRING = json.JSONDecoder(strict=False)
_MARK = re.compile(r'["\[{,]')


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise ValueError("too deep")
    if isinstance(value, dict):
        return {clean_text(key): _clean(member, depth - 1) for key, member in value.items()}
    return [_clean(member, depth - 1) for member in value]


def _refuse(name: str) -> None:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _whole(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if is_count else None  # type: ignore[return-value]


def _amount(value: object) -> float | None:
    is_amount = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_COST_USD
    return round(float(value), 6) if is_amount else None  # type: ignore[arg-type]
