"""Reads of schedules and of what became of their due times."""

import uuid
from dataclasses import dataclass

from django.db.models import OuterRef, QuerySet, Subquery

from backlog.models import Execution
from fleet.models import Agent

from .errors import ScheduleNotFound
from .models import Firing, FiringOutcome, Schedule


def schedules_of(agent: Agent) -> QuerySet[Schedule]:
    """The agent's schedules, by name."""
    return Schedule.objects.filter(agent=agent).select_related("agent", "made_by").defer("agent__runtime")


def schedule_of(agent: Agent, schedule_id: uuid.UUID) -> Schedule:
    """One of the agent's; raises `ScheduleNotFound`."""
    schedule = schedules_of(agent).filter(pk=schedule_id).first()
    if schedule is None:
        raise ScheduleNotFound
    return schedule


def firings_of(schedule: Schedule) -> QuerySet[Firing]:
    """The schedule's due times, the last first."""
    return Firing.objects.filter(schedule=schedule)


def last_firings(schedules: list[Schedule]) -> dict[uuid.UUID, Firing]:
    """`{schedule id: its last firing}`, by one query; those that never came due are left out."""
    newest = Firing.objects.filter(schedule=OuterRef("schedule")).order_by("-due_at", "-id").values("pk")[:1]
    found = Firing.objects.filter(schedule__in=schedules, pk=Subquery(newest)).order_by()
    return {firing.schedule_id: firing for firing in found}


@dataclass(frozen=True, kw_only=True)
class Made:
    """The execution that a firing has made, and its status; None where it has made none, or its row is gone by now."""

    execution_id: uuid.UUID | None = None
    status: str | None = None


def made_by(firings: list[Firing]) -> dict[int, Made]:
    """`{firing id: what it has made}`, by one query."""
    submitted = {firing.execution_id for firing in firings if firing.outcome == FiringOutcome.SUBMITTED}
    states = dict(Execution.objects.filter(pk__in=submitted).values_list("pk", "status")) if submitted else {}
    return {
        firing.pk: Made(execution_id=firing.execution_id, status=states.get(firing.execution_id))
        if firing.execution_id in submitted
        else Made()
        for firing in firings
    }
