"""What lists of executions are narrowed by: in a query string, and in the body of a cancel of many."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from backlog.models import Status, Trigger
from core import api
from core.api.queries import Reader

FILTERS: dict[str, Reader] = {
    "status": api.choices(Status.values, repeat=True),
    "triggered_by": api.choices(Trigger.values),
    "session_id": api.unique_id(),
    "since": api.moment(),
    "until": api.moment(),
    **api.KeysetPagination.parameters,
}
_LOOKUPS = {
    "status": "status__in",
    "triggered_by": "triggered_by",
    "session_id": "session_id",
    "agent": "agent_name",
    "ids": "pk__in",
}
#: `since` is part of the span, `until` is not. Compared with the moment just before: SQLite compares moments as text, and one
#: that it stamped itself has fewer digits than the same one sent.
_SPAN = {"since": "created_at__gt", "until": "created_at__lte"}
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)


def lookups_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The filters as lookups of execution rows; what is no filter is passed over."""
    plain = {lookup: asked[name] for name, lookup in _LOOKUPS.items() if name in asked}
    return plain | {lookup: _just_before(asked[name]) for name, lookup in _SPAN.items() if name in asked}


def _just_before(moment: datetime) -> datetime:
    return max(moment, _FIRST_MOMENT) - timedelta(microseconds=1)
