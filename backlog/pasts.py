"""What is known of an agent's last arrivals, read from its rows for a replay (`what_if`)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, F, Func, QuerySet
from django.db.models.sql.compiler import SQLCompiler

from .forecast import FIRST_GUESS_SECONDS
from .models import Execution, Status, Trigger
from .selectors import database_now, unfinished_of
from .what_if import Arrival, History, Span

#: Rows from before the window that waited or ran when it began.
MOST_CARRIED = 10_000
_UNIT = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RAN = (Status.SUCCESS, Status.FAILED)


class _Milliseconds(Func):
    """A moment as milliseconds since 1970: making a `datetime` of each would take longer than the replay."""

    output_field = BigIntegerField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        # SQLite itself counts in whole milliseconds of the Julian day.
        template = "CAST(ROUND((julianday(%(expressions)s) - 2440587.5) * 86400000.0) AS INTEGER)"
        return self.as_sql(compiler, connection, template=template, **extra)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="ROUND(EXTRACT(EPOCH FROM %(expressions)s) * 1000)::bigint", **extra)


_COLUMNS: tuple[str | Func, ...] = (
    *(_Milliseconds(F(moment)) for moment in ("queued_at", "granted_at", "completed_at")),
    *("status", "error_code", "front", "priority", "session_id", "triggered_by"),
    _Milliseconds(F("seen_at")),
)


class _Row(NamedTuple):
    """What is read of a row; moments in milliseconds since 1970."""

    queued: int
    granted: int | None
    completed: int | None
    status: str
    error_code: str
    front: bool
    priority: int
    session_id: Any
    triggered_by: str
    seen: int | None


@dataclass(frozen=True, kw_only=True)
class About:
    """Which window was read, and how well."""

    since: datetime
    until: datetime
    #: There were more rows in the window than were read; it begins at the oldest of the newest.
    truncated: bool
    arrivals: int
    #: Milliseconds, assumed for the `assumed` arrivals that have not run, or not to their end.
    typical_run: int
    assumed: int


@dataclass(frozen=True, kw_only=True)
class Past:
    """A window of an agent's past; times in `history` and `spans` are whole milliseconds since it began."""

    history: History
    #: What really happened, of the same arrivals.
    spans: Sequence[Span]
    about: About


def past_of(agent_id: int, *, window: timedelta, most: int, expiry: timedelta) -> Past:
    """The agent's last arrivals, at most `most`, up to now on the database's clock; three queries."""
    until = database_now()
    since = until - window
    mine = Execution.objects.filter(agent_id=agent_id)
    read = _read(mine.filter(created_at__gte=since).order_by("-created_at", "-id")[: most + 1])
    if truncated := len(read) > most:
        read.pop()
        # Just before: SQLite compares moments as text, and one that it stamped has fewer digits than the same one sent.
        since = _EPOCH + (min(row.queued for row in read) - 1) * _UNIT
    rows = sorted([*_carried(agent_id, since), *reversed(read)], key=lambda row: row.queued)
    typical = _typical(rows)
    begun, end, patience = (since - _EPOCH) // _UNIT, (until - since) // _UNIT, expiry // _UNIT
    spans = [Span(row.queued - begun, _after(row.granted, begun), _after(row.completed, begun)) for row in rows]
    played = [_arrival(row, span, typical=typical, until=end, patience=patience) for row, span in zip(rows, spans, strict=True)]
    return Past(
        history=History(arrivals=played, since=0, until=end),
        spans=spans,
        about=About(
            since=since, until=until, truncated=truncated, arrivals=len(read), typical_run=typical,
            assumed=sum(span.at >= 0 and not _is_known(row) for row, span in zip(rows, spans, strict=True)),
        ),
    )  # fmt: skip


def _carried(agent_id: int, since: datetime) -> list[_Row]:
    """Rows from before `since` that ran or waited then; without those that gave up in line later, which no index finds."""
    ended = Execution.objects.filter(agent_id=agent_id, started_at__isnull=False, completed_at__gte=since, created_at__lt=since)
    going_on = unfinished_of(agent_id).filter(created_at__lt=since, completed_at=None)
    return _read(ended.order_by("-completed_at")[:MOST_CARRIED]) + _read(going_on.order_by("created_at", "id")[:MOST_CARRIED])


def _read(rows: QuerySet[Execution]) -> list[_Row]:
    return [_Row(*row) for row in rows.values_list(*_COLUMNS)]


def _arrival(row: _Row, span: Span, *, typical: int, until: int, patience: int) -> Arrival:
    held = _held(row, span, typical=typical, until=until)
    in_slot = span.granted is not None and span.granted < 0
    return Arrival(
        at=span.at,
        # Of one in a slot when the window begins only what is left of it.
        run=held + span.granted if in_slot and span.granted is not None else held,
        front=row.front,
        priority=row.priority,
        leaves=span.ended if span.granted is None and span.ended is not None else span.at + patience,
        session=row.session_id,
        holds=in_slot,
        never_waits=row.triggered_by == Trigger.PUBLIC,
        attended=row.seen is not None,
    )


def _held(row: _Row, span: Span, *, typical: int, until: int) -> float:
    """How long it held its slot; what isn't known is taken for a typical run, and for no less than it has lasted so far."""
    if span.granted is not None:
        return span.ended - span.granted if span.ended is not None else max(typical, until - span.granted)
    return 0 if _is_known(row) else typical


def _is_known(row: _Row) -> bool:
    """Whether it is known for how long it holds a slot."""
    if row.granted is not None:
        return row.completed is not None
    # One that failed at its turn (its caller had lost access, say) would have failed at any turn.
    return row.status == Status.FAILED and row.error_code != "expired"


def _typical(rows: Iterable[_Row]) -> int:
    """The median run."""
    runs = [row.completed - row.granted for row in rows if row.granted and row.completed and row.status in _RAN]
    return int(median(runs)) if runs else timedelta(seconds=FIRST_GUESS_SECONDS) // _UNIT


def _after(moment: int | None, begun: int) -> int | None:
    return None if moment is None else moment - begun
