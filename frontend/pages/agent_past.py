"""The past that an agent's page tells: what ran last, what that cost, who changed what."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import Left
from django.utils import timezone

from backlog.models import TERMINAL, Execution, Status
from fleet.models import Agent, AuditEntry
from fleet.selectors import audit_of

from .agent_slots import PREVIEW_CHARACTERS

SHOWN_RECENT = 20
SHOWN_CHANGES = 8
#: Runs that are added up at most: the page must stay quick for whoever runs millions.
MOST_SUMMED = 50_000
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
_VALUE_CHARACTERS = 60
#: Times are told in UTC, to the microsecond.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UNREAD = ("message", "system_prompt", "allowed_tools", "metadata", "response", "error")
_SETTINGS = {
    "max_parallel_tasks": "Limit",
    "max_backlog_depth": "Backlog depth",
    "execution_timeout_seconds": "Time limit of a run (s)",
    "override_until": "Temporary until",
}


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What the runs that ended in a span came to. `cost` None: no run of it told its cost."""

    name: str
    runs: int
    succeeded: int
    failed: int
    cost: Decimal | None
    #: Whether there were more runs than are added up.
    partial: bool

    @property
    def percent(self) -> int | None:
        """Successes among what succeeded or failed, rounded down: 100 means all; None without any."""
        judged = self.succeeded + self.failed
        return 100 * self.succeeded // judged if judged else None


@dataclass(frozen=True, kw_only=True)
class Change:
    """An entry of the audit trail in words."""

    at: datetime
    actor: str
    text: str


def recent_of(agent: Agent) -> Sequence[Execution]:
    """The agent's executions that have ended, newest first, with the beginnings of their long texts."""
    ended = Execution.objects.filter(agent=agent, status__in=TERMINAL).defer(*_UNREAD).order_by("-created_at", "-id")
    begun = {"preview": Left("message", PREVIEW_CHARACTERS), "said": Left("response", PREVIEW_CHARACTERS)}
    return list(ended.annotate(**begun, failure=Left("error", PREVIEW_CHARACTERS))[:SHOWN_RECENT])


def spent_of(agent: Agent) -> list[Spent]:
    """Runs, outcomes and cost of the last 24 hours and of the last 7 days, by one query over at most `MOST_SUMMED` runs."""
    now = timezone.now()
    ended = Execution.objects.filter(agent=agent, started_at__isnull=False, completed_at__gte=now - WEEK)
    newest = ended.order_by("-completed_at").values("completed_at", "status", "cost_usd")[:MOST_SUMMED]
    sums: dict[str, Any] = {}
    for key, since in (("day", now - DAY), ("week", now - WEEK)):
        within = Q(completed_at__gte=since)
        sums[f"{key}_runs"] = Count("status", filter=within)
        sums[f"{key}_succeeded"] = Count("status", filter=within & Q(status=Status.SUCCESS))
        sums[f"{key}_failed"] = Count("status", filter=within & Q(status=Status.FAILED))
        sums[f"{key}_cost"] = Sum("cost_usd", filter=within)
    found = newest.aggregate(**sums)
    return [_spent(found, key, name) for key, name in (("day", "Last 24 hours"), ("week", "Last 7 days"))]


def _spent(found: dict[str, Any], key: str, name: str) -> Spent:
    runs: int = found[f"{key}_runs"]
    return Spent(
        name=name, runs=runs, succeeded=found[f"{key}_succeeded"], failed=found[f"{key}_failed"], cost=found[f"{key}_cost"],
        partial=runs >= MOST_SUMMED,
    )  # fmt: skip


def changes_of(agent: Agent) -> list[Change]:
    """The last entries of the agent's audit trail."""
    return [Change(at=entry.at, actor=entry.actor_name, text=_told(entry)) for entry in audit_of(agent)[:SHOWN_CHANGES]]


def _told(entry: AuditEntry) -> str:
    if entry.action == "paused":
        return "Paused" if entry.after else "Resumed"
    if entry.action == "queue_cleared":
        return f"Backlog cleared: {entry.before}"
    if entry.action in _SETTINGS:
        return f"{_SETTINGS[entry.action]}: {_value(entry.before)} → {_value(entry.after)}"
    return entry.action.replace("_", " ").capitalize()


def _value(value: Any) -> str:
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return f"{value[:10]} {value[11:16]} UTC"
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}…"
