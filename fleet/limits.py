"""Capacity settings, an agent's and the fleet's: their names, their bounds, their sentences."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from core.errors import InvalidFields

from .first_values import MAX_CAP, MAX_CEILING
from .models import MAX_BACKLOG_DEPTH, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS, Agent, OnFull

NAMES = ("max_parallel_tasks", "max_backlog_depth", "execution_timeout_seconds")
#: What is told of a change: these, and until when the first is not the lasting one.
TOLD = (*NAMES, "override_until")


def bounds(ceiling: int) -> dict[str, tuple[int, int]]:
    """`{name: (lowest, highest)}`."""
    return {
        "max_parallel_tasks": (1, ceiling),
        "max_backlog_depth": (0, MAX_BACKLOG_DEPTH),
        "execution_timeout_seconds": (MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS),
    }


def check(changes: Mapping[str, Any], *, ceiling: int) -> dict[str, int]:
    """The changes, each an integer within its bounds; raises `InvalidFields` that names every one that isn't."""
    allowed = bounds(ceiling)
    errors = [error for name, value in changes.items() if (error := _error(name, value, allowed))]
    if errors:
        raise InvalidFields(errors)
    return dict(changes)


def values(agent: Agent) -> dict[str, int]:
    """The agent's settings by name."""
    return {name: getattr(agent, name) for name in NAMES}


def told(agent: Agent) -> dict[str, Any]:
    """What an audit entry tells of the agent's settings, by name."""
    until = agent.override_until
    return {**values(agent), "override_until": None if until is None else until.astimezone(UTC).isoformat().replace("+00:00", "Z")}


def check_ceiling(value: Any) -> int:
    """The ceiling, or `InvalidFields`."""
    if type(value) is int and 1 <= value <= MAX_CEILING:
        return value
    raise InvalidFields.of("value", f"value must be an integer between 1 and {MAX_CEILING}")


def check_cap(value: Any) -> int | None:
    """The fleet's cap, None for none, or `InvalidFields`."""
    if value is None or (type(value) is int and 1 <= value <= MAX_CAP):
        return value
    raise InvalidFields.of("value", f"value must be null or an integer between 1 and {MAX_CAP}")


def check_on_full(value: Any) -> str:
    """What becomes of tasks at the cap, or `InvalidFields`."""
    if type(value) is str and value in OnFull.values:
        return value
    raise InvalidFields.of("on_full", f"on_full must be one of {', '.join(OnFull.values)}")


def _error(name: str, value: Any, allowed: Mapping[str, tuple[int, int]]) -> dict[str, str] | None:
    if name not in allowed:
        return _described(name, "unknown_field", f"Unknown field '{name}'; the valid fields are {', '.join(allowed)}")
    if value is None and name == "max_parallel_tasks":
        return _described(name, "required", f"{name} is required")
    low, high = allowed[name]
    if type(value) is int and low <= value <= high:
        return None
    return _described(name, "invalid", f"{name} must be an integer between {low} and {high}")


def _described(name: str, code: str, detail: str) -> dict[str, str]:
    return {"pointer": f"/{name}", "code": code, "detail": detail}
