"""How many slots agents used, minute by minute, from the rows alone: the past needs nothing that was recorded for it."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, DateTimeField, F, FloatField, Func, IntegerField, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, Greatest

from . import history
from .models import Execution, Status

_MINUTE = 60.0


class _SecondsSince(Func):
    """The seconds from the second moment to the first."""

    output_field = FloatField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """By days: moments are text there."""
        context |= {"template": "((julianday(%(expressions)s)) * 86400.0)", "arg_joiner": ") - julianday("}
        return self.as_sql(compiler, connection, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """By the interval between them."""
        return self.as_sql(compiler, connection, template="EXTRACT(EPOCH FROM (%(expressions)s))::float8", arg_joiner=" - ", **context)


class _Minute(Func):
    """The whole minutes in seconds that are not negative."""

    template = "CAST((%(expressions)s) / 60 AS INTEGER)"
    output_field = IntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """A cast rounds there."""
        return self.as_sql(compiler, connection, template="CAST(FLOOR((%(expressions)s) / 60) AS INTEGER)", **context)


def slots_used(agent_ids: Collection[int], *, end: datetime, minutes: int) -> dict[int, list[float]]:
    """`{agent id: mean of the slots used in each of the last minutes}`, the oldest first; agents that used none are left out.

    One query, which counts rows that share their first and last minute together: its answer grows with the minutes, not with
    the rows.
    """
    begin = end - timedelta(minutes=minutes)
    ended = _held(history.ended_of(agent_ids, begin=begin, end=end), begin=begin, until=F("completed_at"))
    running = _held(history.running_of(agent_ids, end=end), begin=begin, until=Value(end, DateTimeField()))
    used: dict[int, list[float]] = {}
    for agent_id, *group in ended.union(running, all=True):
        _add(used.setdefault(agent_id, [0.0] * minutes), *group)
    return {agent_id: [seconds / _MINUTE for seconds in row] for agent_id, row in used.items()}


def longest_wait(agent_ids: Collection[int]) -> tuple[str, datetime] | None:
    """The name of the agent whose line holds the longest wait, and since when; None while nothing waits."""
    waiting = Execution.objects.filter(agent_id__in=agent_ids, status=Status.QUEUED).order_by("queued_at")
    return waiting.values_list("agent_name", "queued_at").first()


def _held(rows: QuerySet[Execution], *, begin: datetime, until: Any) -> QuerySet[Execution, Any]:
    since = Value(begin, DateTimeField())
    granted = rows.annotate(granted=Coalesce("granted_at", "started_at")).filter(granted__isnull=False).order_by()
    spans = granted.annotate(
        first=Greatest(Value(0.0), _SecondsSince(F("granted"), since)), last=Greatest(Value(0.0), _SecondsSince(until, since))
    )
    grouped = spans.values("agent_id", first_minute=_Minute(F("first")), last_minute=_Minute(F("last")))
    return grouped.annotate(rows=Count("*"), firsts=Sum("first"), lasts=Sum("last")).values_list(
        "agent_id", "first_minute", "last_minute", "rows", "firsts", "lasts"
    )


def _add(used: list[float], first: int, last: int, rows: int, firsts: float, lasts: float) -> None:
    """Spread the seconds of rows that began in one minute and ended in another over those between."""
    first, last = min(first, len(used) - 1), min(last, len(used) - 1)
    if first >= last:
        used[first] += max(0.0, lasts - firsts)
        return
    used[first] += rows * (first + 1) * _MINUTE - firsts
    used[last] += lasts - rows * last * _MINUTE
    for minute in range(first + 1, last):
        used[minute] += rows * _MINUTE
