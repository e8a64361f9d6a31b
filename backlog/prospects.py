"""How long agents' last runs took and how long their present ones have been at it, read for forecasts."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Count, F, FloatField, Func, JSONField, OuterRef, Q, QuerySet, Subquery, Value, Window
from django.db.models.functions import Coalesce, Now, RowNumber
from django.db.models.sql.compiler import SQLCompiler

from fleet.models import Agent

from .models import LINE, Execution, Status
from .presence import attended
from .selectors import unfinished_of_session

#: Of each agent; enough to tell a spread.
LAST_RUNS = 50
#: A fleet may hold a hundred thousand slots; one of so many frees at once.
MOST_HOLDERS = 200
#: So many in line before one are as good as any more.
MOST_WAITING = 1000


class _Seconds(Func):
    """The seconds from the second moment to the first."""

    output_field = FloatField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="((%(expressions)s) * 86400.0)", arg_joiner=" - ", **extra)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="EXTRACT(EPOCH FROM (%(expressions)s))", arg_joiner=" - ", **extra)


class _Day(Func):
    """A moment as a number of days where the database keeps it as text."""

    output_field = FloatField()
    function = "julianday"

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="%(expressions)s", **extra)


class _Listed(Subquery):
    """The `value` of each row of a query, as one JSON list."""

    output_field = JSONField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="(SELECT json_group_array(value) FROM (%(subquery)s) listed)", **extra)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        template = "(SELECT COALESCE(jsonb_agg(value), '[]') FROM (%(subquery)s) listed)"
        return self.as_sql(compiler, connection, template=template, **extra)


@dataclass(frozen=True, kw_only=True)
class Known:
    """One agent's last runs and present ones, in seconds (0 for one not started), and its startable rows in line."""

    runs: list[float]
    ages: list[float]
    startable: int


def known_of(agent_ids: Iterable[int]) -> dict[int, Known]:
    """`{agent id: Known}`, by one query that reads at most `LAST_RUNS` finished rows of each."""
    mine = Execution.objects.filter(agent_id=OuterRef("pk"))
    waiting = (
        mine.filter(attended(), status=Status.QUEUED, startable=True).order_by().values("agent").annotate(count=Count("*")).values("count")
    )
    agents = Agent.objects.filter(pk__in=set(agent_ids)).order_by()
    read = agents.values_list("pk", _Listed(last_runs(mine)), _Listed(_ages(mine)), Coalesce(Subquery(waiting), Value(0)))
    return {pk: Known(runs=runs, ages=[age or 0.0 for age in ages], startable=startable) for pk, runs, ages, startable in read}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A row's 1-based place in its agent's line, and its place if those before it that wait for their sessions stay behind."""

    position: int
    ready: int


def places_of(rows: Iterable[Execution]) -> dict[uuid.UUID, Place]:
    """`{id: Place}` of those of the rows that wait in line, by one query however many they are."""
    waiting = [row for row in rows if row.status == Status.QUEUED]
    if not waiting:
        return {}
    line = Execution.objects.filter(agent_id__in={row.agent_id for row in waiting}, status=Status.QUEUED).order_by()
    position = Window(RowNumber(), partition_by="agent_id", order_by=LINE)
    ready = Window(Count("pk", filter=Q(startable=True)), partition_by="agent_id", order_by=LINE)
    # As alternatives, or the ids would be applied before the rows are numbered.
    wanted = Q(pk__in=[row.pk for row in waiting]) | Q(position__lt=1)
    read = line.annotate(position=position, ready=ready).filter(wanted).values_list("pk", "position", "ready", "startable")
    return {pk: Place(position=at, ready=max(1, before if startable else before + 1)) for pk, at, before, startable in read}


@dataclass(frozen=True, kw_only=True)
class SessionLoad:
    """A session's unfinished rows, the one that runs first; `ages` are the seconds of those that hold a slot."""

    ids: list[uuid.UUID]
    ages: list[float]


def session_load(session_id: uuid.UUID) -> SessionLoad:
    """What a session is busy with."""
    age = _Seconds(_Day(Now()), _Day(F("started_at")))
    rows = unfinished_of_session(session_id).order_by(F("slot_token").asc(nulls_last=True), "queued_at", "id")
    read = list(rows.values_list("pk", "slot_token", age)[:MOST_WAITING])
    return SessionLoad(ids=[pk for pk, _, _ in read], ages=[seconds or 0.0 for _, token, seconds in read if token is not None])


def startable_in_fleet() -> int:
    """How many rows of all agents could start now but for a place, at most `MOST_WAITING`."""
    return Execution.objects.filter(attended(), status=Status.QUEUED, startable=True).order_by()[:MOST_WAITING].count()


def ages_in_fleet() -> list[float]:
    """For how long the fleet's present runs have been at it: at most `MOST_HOLDERS` of them."""
    held = Execution.objects.filter(slot_token__isnull=False)
    return [read["value"] or 0.0 for read in _ages(held)]


def last_runs(rows: QuerySet[Execution]) -> QuerySet[Execution, Any]:
    """The `value` of the last runs among the rows: the seconds they took."""
    ended = rows.filter(started_at__isnull=False, completed_at__isnull=False).order_by("-completed_at")
    return ended.values(value=_Seconds(_Day(F("completed_at")), _Day(F("started_at"))))[:LAST_RUNS]


def _ages(rows: QuerySet[Execution]) -> QuerySet[Execution, Any]:
    held = rows.filter(slot_token__isnull=False).order_by()
    return held.values(value=_Seconds(_Day(Now()), _Day(F("started_at"))))[:MOST_HOLDERS]
