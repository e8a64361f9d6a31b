"""What agents answer, made fit to be kept: no NUL and no half characters, which PostgreSQL can't hold, no NaN."""

import json
import math
from collections.abc import Mapping
from typing import Any

#: Longest `error` of an execution.
MAX_ERROR_CHARACTERS = 4000
MAX_TOKENS = 2**63 - 1
MAX_COST_USD = 10**8 - 1


def clean_text(text: str) -> str:
    """`text` without NUL; lone surrogates replaced."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def decode(data: bytes) -> str:
    """The clean text of `data`; what isn't UTF-8 is replaced."""
    return clean_text(data.decode("utf-8", "replace"))


def parse_object(text: str | bytes) -> dict[str, Any] | None:
    """The clean JSON object that `text` is, or None: also for NaN, infinities and nesting past all reason."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        return _clean(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


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


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(member) for key, member in value.items()}
    return [_clean(member) for member in value] if isinstance(value, list) else value


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
