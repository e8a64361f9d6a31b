"""Schedules as their agent's owner makes, changes, ends and runs them. `firing` starts them when they come due.

The database's clock is the one that counts: a host whose own is wrong changes nothing.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from backlog import selectors as rows
from backlog.models import Execution, Trigger
from core.errors import InvalidFields
from fleet import access, audit, locks
from fleet.models import Agent, OnFull
from fleet.principals import Principal

from .. import due_times
from ..errors import ScheduleExists, ScheduleNotFound
from ..models import Firing, FiringOutcome, Schedule
from . import submit
from .submit import Submitted, TaskRequest

#: What an owner sets, as the API names it.
FIELDS = ("name", "message", "cron", "interval_seconds", "timezone", "enabled", "timeout_seconds")
_TIMING = ("cron", "interval_seconds", "timezone")
#: Of a message an audit entry tells the beginning.
AUDITED_CHARACTERS = 200


def create_schedule(*, principal: Principal, agent_name: str, values: Mapping[str, Any]) -> Schedule:
    """A new schedule of the agent's; its firings are submitted as the principal.

    `values` are of `FIELDS`; one of `cron` and `interval_seconds` is needed. Raises access's errors, `InvalidFields`,
    `ScheduleExists`.
    """
    agent = access.agent_for(principal=principal, name=agent_name, verb=access.Verb.OWN)
    with transaction.atomic():
        owned = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        now = rows.database_now()
        schedule = Schedule(agent=owned, made_by=principal.user, created_at=now, anchor_at=now.replace(microsecond=0))
        _assign(schedule, values)
        _check_timing(schedule)
        schedule.next_due_at = _next_due(schedule, now=now) if schedule.enabled else None
        _save(schedule, force_insert=True)
        audit.record(principal, "schedule_created", agent=owned, after=_told(schedule, FIELDS))
    return schedule


def change_schedule(*, principal: Principal, agent_name: str, schedule_id: uuid.UUID, changes: Mapping[str, Any]) -> Schedule:
    """The schedule with `changes` made, and from then on the principal's: its firings are submitted as theirs.

    Of `cron` and `interval_seconds` one replaces the other. Whatever was enabled or timed anew comes due in the future; a
    disabled one fires no more, not even for what is pending. Raises as `create_schedule`, and `ScheduleNotFound`.
    """
    agent = access.agent_for(principal=principal, name=agent_name, verb=access.Verb.OWN)
    with transaction.atomic():
        owned = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        schedule = _locked(owned, schedule_id)
        before = _values(schedule)
        _assign(schedule, changes)
        schedule.made_by = principal.user
        changed = [name for name in FIELDS if before[name] != getattr(schedule, name)]
        if changed:
            _time_anew(schedule, changed)
            _save(schedule)
            was = _told(Schedule(pk=schedule.pk, **before), changed)
            audit.record(principal, "schedule_changed", agent=owned, before=was, after=_told(schedule, changed))
    return schedule


def delete_schedule(*, principal: Principal, agent_name: str, schedule_id: uuid.UUID) -> None:
    """The schedule and its firings are gone; executions that it has made go on. Raises access's errors, `ScheduleNotFound`."""
    agent = access.agent_for(principal=principal, name=agent_name, verb=access.Verb.OWN)
    with transaction.atomic():
        owned = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        schedule = _locked(owned, schedule_id)
        audit.record(principal, "schedule_deleted", agent=owned, before=_told(schedule, FIELDS))
        schedule.delete()


def run_schedule(*, principal: Principal, agent_name: str, schedule_id: uuid.UUID) -> Submitted:
    """Submit the schedule's task now, as the principal; when it comes due next stays as it is.

    Raises access's errors, `ScheduleNotFound`, and the refusals of `submit_task`: nothing is tried again.
    """
    agent = access.agent_for(principal=principal, name=agent_name, verb=access.Verb.OWN)
    schedule = Schedule.objects.filter(pk=schedule_id, agent=agent).first()
    if schedule is None:
        raise ScheduleNotFound
    return submit.submit_task(principal=principal, name=agent.name, request=request_of(schedule))


def end_schedules(agent: Agent) -> None:
    """Delete the schedules of an agent that was deleted."""
    with transaction.atomic():
        # Held first: whoever fires one of them at this moment adds a row that refers to it.
        held = list(Schedule.objects.select_for_update().filter(agent=agent).order_by("pk").values_list("pk", flat=True))
        Schedule.objects.filter(pk__in=held).delete()


def request_of(schedule: Schedule, *, due_at: datetime | None = None, execution_id: uuid.UUID | None = None) -> TaskRequest:
    """The schedule's task as every way in submits it."""
    origin = {"id": str(schedule.pk), "name": schedule.name, "due_at": None if due_at is None else f"{due_at:%Y-%m-%dT%H:%M:%SZ}"}
    return TaskRequest(
        message=schedule.message,
        on_full=OnFull.QUEUE,
        timeout_seconds=schedule.timeout_seconds,
        metadata={"schedule": origin},
        triggered_by=Trigger.SCHEDULE,
        execution_id=execution_id,
    )


def give_up_pending(schedule: Schedule, *, reason: str) -> list[Firing]:
    """End what the schedule has pending as missed, for what stood in its way or else for `reason`; returns what ended so."""
    pending = Firing.objects.filter(schedule=schedule, outcome=FiringOutcome.PENDING)
    return [one for one in pending if settle(one, FiringOutcome.MISSED, reason=one.reason or reason) == FiringOutcome.MISSED]


def settle(firing: Firing, outcome: FiringOutcome, *, reason: str) -> FiringOutcome | None:
    """Record what became of a pending firing, and return it; None where it is settled already.

    One whose execution is there was submitted, whatever is said of it: by a process that died before it could say so.
    """
    if Execution.objects.filter(pk=firing.execution_id).exists():
        outcome, reason = FiringOutcome.SUBMITTED, ""
    firing.reason = reason
    pending = Firing.objects.filter(pk=firing.pk, outcome=FiringOutcome.PENDING)
    return outcome if pending.update(outcome=outcome, reason=reason) else None


def _locked(agent: Agent, schedule_id: uuid.UUID) -> Schedule:
    schedule = Schedule.objects.select_for_update().filter(pk=schedule_id, agent=agent).first()
    if schedule is None:
        raise ScheduleNotFound
    schedule.agent = agent
    return schedule


def _assign(schedule: Schedule, values: Mapping[str, Any]) -> None:
    """Set the values; a cron that is sent alone takes the interval's place, and the other way round."""
    for name in FIELDS:
        if name in values:
            setattr(schedule, name, "" if name == "cron" and values[name] is None else values[name])
    if values.get("cron") and "interval_seconds" not in values:
        schedule.interval_seconds = None
    if values.get("interval_seconds") and "cron" not in values:
        schedule.cron = ""


def _check_timing(schedule: Schedule) -> None:
    if bool(schedule.cron) == (schedule.interval_seconds is not None):
        raise InvalidFields.of("cron", "Exactly one of cron and interval_seconds is needed")
    if schedule.cron and not due_times.is_cron(schedule.cron):
        wanted = "cron must be five fields (minute, hour, day of month, month, day of week) that come due, such as '0 9 * * 1-5'"
        raise InvalidFields.of("cron", wanted)
    if not due_times.is_timezone(schedule.timezone):
        raise InvalidFields.of("timezone", "timezone must be a name of the IANA time zone database, such as Europe/Berlin")


def _time_anew(schedule: Schedule, changed: list[str]) -> None:
    _check_timing(schedule)
    if not schedule.enabled:
        schedule.next_due_at = None
        give_up_pending(schedule, reason="disabled")
    elif "enabled" in changed or not {*changed}.isdisjoint(_TIMING):
        now = rows.database_now()
        if "interval_seconds" in changed:
            schedule.anchor_at = now.replace(microsecond=0)
        schedule.next_due_at = _next_due(schedule, now=now)


def _next_due(schedule: Schedule, *, now: datetime) -> datetime | None:
    return due_times.next_due(timing=schedule.timing, after=now)


def _save(schedule: Schedule, *, force_insert: bool = False) -> None:
    try:
        with transaction.atomic():
            schedule.save(force_insert=force_insert)
    except IntegrityError as error:
        raise ScheduleExists(name=schedule.name) from error


def _values(schedule: Schedule) -> dict[str, Any]:
    return {name: getattr(schedule, name) for name in FIELDS}


def _told(schedule: Schedule, names: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """What an audit entry says of it."""
    values = {name: getattr(schedule, name) for name in names}
    if "message" in values:
        values["message"] = schedule.message[:AUDITED_CHARACTERS]
    return {"id": str(schedule.pk), **values}
