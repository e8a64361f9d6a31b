"""What a run says it has used, made fit for its columns."""

from decimal import Decimal, InvalidOperation
from typing import Any

LARGEST_TOKENS = 2**53
LARGEST_COST_USD = Decimal(10) ** 7


def recorded(usage: Any) -> dict[str, Any]:
    """`{input_tokens, output_tokens, cost_usd}` of an agent's own report; what isn't a sensible number is None."""
    given = usage if isinstance(usage, dict) else {}
    return {
        "input_tokens": _count(given.get("input_tokens")),
        "output_tokens": _count(given.get("output_tokens")),
        "cost_usd": _cost(given.get("cost_usd")),
    }


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_TOKENS else None


def _cost(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        cost = Decimal(str(value)[:40])
    except InvalidOperation:
        return None
    return round(cost, 6) if cost.is_finite() and 0 <= cost < LARGEST_COST_USD else None
