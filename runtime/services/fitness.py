"""Whether a row that is about to start can be run at all, as it is stored and as its caller's rights are now.

It may have waited for a day: its caller may have lost the agent, and what is stored may have been changed by hand. Such a row
fails with its reason instead of being handed to an agent, and the next one starts in its place.
"""

from dataclasses import dataclass
from typing import Any

from backlog import selectors as rows
from backlog.models import Execution
from fleet import access
from fleet.models import MAX_TIMEOUT_SECONDS

from ..errors import AccessLost, InvalidRequest


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """Why a row can't be run."""

    error_code: str
    error: str


def unfit(row: Execution) -> Unfit | None:
    """The reason, or None. The row was read with its agent through `backlog.selectors.with_submitter`."""
    wrong = [name for name, is_right in _SHAPES.items() if not is_right(getattr(row, name))]
    if wrong:
        return Unfit(error_code=InvalidRequest.code, error=f"The stored request can't be run: {', '.join(wrong)}")
    if not access.may_still_submit(rows.submitter_of(row), row.agent):
        return Unfit(error_code=AccessLost.code, error=str(AccessLost.__doc__))
    return None


def _is_tools(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))


_SHAPES = {
    "message": lambda value: isinstance(value, str) and bool(value.strip()),
    "timeout_seconds": lambda value: isinstance(value, int) and 1 <= value <= MAX_TIMEOUT_SECONDS,
    "allowed_tools": _is_tools,
    "max_turns": lambda value: value is None or (isinstance(value, int) and value >= 1),
    "metadata": lambda value: isinstance(value, dict),
}
