"""Granted rows that no worker has started: their messages were lost, or never sent."""

from datetime import timedelta

from django.db.models import ExpressionWrapper, F, Q, fields
from django.db.models.functions import Now

from backlog import selectors as rows
from backlog import services as backlog
from backlog.models import Execution
from capacity.leases import Admission
from core.conf import conf

from ... import dispatch
from .. import broker
from .journal import Kind, note
from .steps import each, lease_of, light

#: Rows dispatched in one pass: a broker that is back must not be flooded by its own backlog.
MOST_A_PASS = 200


def dispatch_again() -> None:
    """Publish granted rows whose start was not published; those whose start was not heard: after 60 s, then 120, 240, …

    While messages wait at the broker no worker has a free thread, and what was not heard may well be among them: then one of
    those a pass, for a lost one must not wait until all are through.
    """
    due = _due()
    if not due or (waiting := broker.waiting_messages()) is None:
        return
    unpublished = [row for row in due if row.dispatched_at is None]
    unheard = [row for row in due if row.dispatched_at is not None]
    each((unpublished + unheard[: 1 if waiting else None])[:MOST_A_PASS], _dispatch)


def _due() -> list[Execution]:
    """Those that are due, not the oldest: these may all have been heard of, and wait for a thread."""
    age = ExpressionWrapper(Now() - F("dispatched_at"), output_field=fields.DurationField())
    perhaps = Q(dispatched_at=None) | Q(dispatched_at__lt=Now() - timedelta(seconds=conf.redispatch_seconds))
    granted = rows.granted_not_started().filter(perhaps, slot_token__isnull=False)
    return [row for row in light(granted).annotate(age=age).order_by("granted_at") if _is_due(row)]


def _is_due(row: Execution) -> bool:
    age: timedelta | None = row.age  # type: ignore[attr-defined]
    return age is None or age.total_seconds() > conf.redispatch_seconds * 2 ** max(0, row.dispatches - 1)


def _dispatch(row: Execution) -> None:
    lease = lease_of(row)
    if not backlog.note_dispatched(execution_id=row.pk, token=lease.token):
        return
    dispatch.start([Admission(lease=lease)])
    if row.dispatched_at is not None:
        note(Kind.DISPATCHED_AGAIN, lease, dispatches=row.dispatches)
