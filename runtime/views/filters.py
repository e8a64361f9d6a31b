"""What lists of executions are narrowed by: in a query string, and in the body of a cancel of many."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from backlog.models import Status, Trigger
from core import api
from core.api.queries import Reader
from fleet.principals import Principal

from ..selectors import TEXT

FILTERS: dict[str, Reader] = {
    "status": api.choices(Status.values, repeat=True),
    "triggered_by": api.choices(Trigger.values),
    "session_id": api.unique_id(),
    "since": api.moment(),
    "until": api.moment(),
    "error_code": api.text(max_length=32),
    "text": api.text(max_length=200),
    "mine": api.choices(["true", "false"]),
    **api.KeysetPagination.parameters,
}
_LOOKUPS = {
    "status": "status__in",
    "triggered_by": "triggered_by",
    "session_id": "session_id",
    "agent": "agent_name",
    "ids": "pk__in",
    "error_code": "error_code",
    "text": TEXT,
}
#: `since` is part of the span, `until` is not. Compared with the moment just before: SQLite compares moments as text, and one
#: that it stamped itself has fewer digits than the same one sent.
_SPAN = {"since": "created_at__gt", "until": "created_at__lte"}
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)


def lookups_of(asked: Mapping[str, Any], *, principal: Principal) -> dict[str, Any]:
    """The filters as lookups of execution rows; what is no filter is passed over."""
    plain = {lookup: asked[name] for name, lookup in _LOOKUPS.items() if name in asked}
    mine = _submitted_by(principal) if asked.get("mine") in {True, "true"} else {}
    return plain | mine | {lookup: _just_before(asked[name]) for name, lookup in _SPAN.items() if name in asked}


def _submitted_by(principal: Principal) -> dict[str, Any]:
    # A person's are those of every credential of theirs, a key's only its own: as where they are cancelled.
    if principal.is_person or principal.key is None:
        return {"submitted_by": principal.user.pk}
    return {"submitted_key": principal.key.pk}


def _just_before(moment: datetime) -> datetime:
    return max(moment, _FIRST_MOMENT) - timedelta(microseconds=1)
