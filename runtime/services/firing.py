"""Firing the schedules that have come due. Each due time makes one execution, whoever looks and whoever dies.

The order: in one transaction the due time becomes a row that carries the id of the execution to be, and the schedule moves on;
then the task is submitted under that id; then the row says so. A crash after the first step leaves a pending row, which the
next pass submits; after the second, the next pass is answered with the execution that is there. Two that do the same at once
meet at the unique due time, and at the execution's id.
"""

import uuid
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import BooleanField, ExpressionWrapper, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now

from backlog.errors import CapacityFull
from capacity.gate import gated
from core.errors import Forbidden, TrinityError, Unavailable
from fleet import access
from fleet.models import Agent
from fleet.principals import Principal

from .. import due_times
from ..due_times import Due, Untimed
from ..errors import AccessLost
from ..models import Firing, FiringOutcome, Schedule
from . import schedules, submit
from .submit import Sender

log = structlog.get_logger(__name__)

#: Due times that one pass takes up; the others come with the next one, for the sweep has more to do.
BATCH = 200


def fire_due() -> None:
    """Take up what has come due, then submit what is pending. One query where there is neither."""
    found = list(_to_do()[:BATCH])
    for schedule_id, due in found:
        if due:
            _take_up(schedule_id)
    if found:
        _submit_pending()


def forget_firings(*, older_than: timedelta, most: int) -> int:
    """Delete at most `most` firings of so long ago, but never the newest of a schedule or a pending one; returns how many."""
    newest = Firing.objects.filter(schedule=OuterRef("schedule")).order_by("-due_at", "-id").values("pk")[:1]
    old = Firing.objects.filter(due_at__lt=Now() - older_than).exclude(outcome=FiringOutcome.PENDING)
    found = old.annotate(newest=Subquery(newest)).exclude(pk=F("newest")).order_by("pk").values_list("pk", flat=True)[:most]
    return Firing.objects.filter(pk__in=list(found)).delete()[0]


def _to_do() -> QuerySet[Schedule, tuple[uuid.UUID, bool | None]]:
    """Ids of the schedules that have come due, or have something pending, and whether it is the former."""
    is_due = Q(next_due_at__lte=Now())
    wanted = Schedule.objects.filter(is_due | Q(pk__in=_pending().order_by().values("schedule")), enabled=True, agent__deleted_at=None)
    soonest = wanted.order_by(F("next_due_at").asc(nulls_last=True))
    return soonest.values_list("pk", ExpressionWrapper(is_due, output_field=BooleanField()))


def _due() -> QuerySet[Schedule]:
    return Schedule.objects.filter(enabled=True, next_due_at__lte=Now(), agent__deleted_at=None)


def _pending() -> QuerySet[Firing]:
    return Firing.objects.filter(outcome=FiringOutcome.PENDING, schedule__enabled=True, schedule__agent__deleted_at=None)


# -- A due time becomes a row ------------------------------------------------------------------------------------------
def _take_up(schedule_id: uuid.UUID) -> None:
    """Record the latest due time until now and move the schedule on; what it had pending until then is missed."""
    with transaction.atomic():
        row = _due().filter(pk=schedule_id).select_for_update(of=("self",), no_key=True).annotate(now=Now()).first()
        if row is None or row.next_due_at is None:
            return
        due = _until_now(row, first=row.next_due_at, now=row.now)
        missed = schedules.give_up_pending(row, reason="superseded")
        firing, _ = Firing.objects.get_or_create(schedule=row, due_at=due.at, defaults={"skipped": due.skipped})
        Schedule.objects.filter(pk=row.pk).update(next_due_at=due.following)
    for one in missed:
        _tell("schedule.missed", one, reason=one.reason)
    if due.skipped:
        _tell("schedule.skipped", firing, skipped=due.skipped)


def _until_now(row: Schedule, *, first: datetime, now: datetime) -> Due:
    """What has come due. A timing that can't be read any more comes due this once: it must not hold up the others."""
    try:
        return due_times.due_until(timing=row.timing, first=first, now=now)
    except Untimed:
        log.error("schedule.untimed", schedule_id=str(row.pk), cron=row.cron, timezone=row.timezone)
        return Due(at=first, skipped=0, following=None)


# -- The row becomes an execution --------------------------------------------------------------------------------------
def _submit_pending() -> None:
    """Submit each, but for those of an agent whose line was full a moment ago.

    Each is read when it is its turn: its schedule may have been changed or ended since the pass began.
    """
    full: set[int] = set()
    for pk, agent_id in list(_pending().order_by("due_at", "id").values_list("pk", "schedule__agent_id")):
        if agent_id in full:
            continue
        firing = _pending().select_related("schedule__agent", "schedule__made_by").defer("schedule__agent__runtime").filter(pk=pk).first()
        if firing is not None and not _submit(firing):
            full.add(agent_id)


def _submit(firing: Firing) -> bool:
    """Whether the firing is settled: its execution is there, or it may not be made. False: no room; it stays pending."""
    person = firing.schedule.made_by
    if person is None or not person.is_active:
        _refuse(firing, reason=AccessLost.code)
        return True
    try:
        _submit_as(Principal.of_user(person), firing)
    except CapacityFull as full:
        Firing.objects.filter(pk=firing.pk, outcome=FiringOutcome.PENDING).update(reason=full.code)
        return False
    except Unavailable:
        raise  # the next pass comes back to it
    except TrinityError as refusal:
        _refuse(firing, reason=AccessLost.code if isinstance(refusal, Forbidden) else refusal.code)
    else:
        # Also where it was given up meanwhile: the execution is there.
        Firing.objects.filter(pk=firing.pk).update(outcome=FiringOutcome.SUBMITTED, reason="")
        _tell("schedule.fired", firing)
    return True


def _submit_as(principal: Principal, firing: Firing) -> None:
    """To this very agent, not to another that has its name since it was deleted."""
    schedule = firing.schedule
    agents = gated(Agent.objects.filter(pk=schedule.agent_id))
    agent = access.agent_for(principal=principal, name=schedule.agent.name, verb=access.Verb.SUBMIT, queryset=agents)
    request = schedules.request_of(schedule, due_at=firing.due_at, execution_id=firing.execution_id)
    submit.submit_as(sender=Sender.of(principal), agent=agent, request=request)


def _refuse(firing: Firing, *, reason: str) -> None:
    if schedules.settle(firing, FiringOutcome.REFUSED, reason=reason) == FiringOutcome.REFUSED:
        _tell("schedule.refused", firing, reason=reason)


def _tell(event: str, firing: Firing, **more: object) -> None:
    tell = log.info if event == "schedule.fired" else log.warning
    tell(
        event, schedule_id=str(firing.schedule_id), due_at=firing.due_at.isoformat(), execution_id=str(firing.execution_id), **more
    )  # fmt: skip
