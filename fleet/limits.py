"""An agent's capacity settings: their names, their bounds, their sentences."""

from collections.abc import Mapping
from typing import Any

from core.errors import InvalidFields

from .models import MAX_BACKLOG_DEPTH, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS, Agent

NAMES = ("max_parallel_tasks", "max_backlog_depth", "execution_timeout_seconds")


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
