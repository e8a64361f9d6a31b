"""Limits set for a time: until when, and what returns then. All on the database's clock."""

from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now

from core.errors import InvalidFields

from .models import Agent

LONGEST_DAYS = 366


def check_until(row: Agent, until: datetime) -> None:
    """Raise `InvalidFields` unless `until` is yet to come, and within `LONGEST_DAYS`."""
    now: datetime = Agent.objects.filter(pk=row.pk).annotate(now=Now()).values_list("now", flat=True).get()
    if not now < until <= now + timedelta(days=LONGEST_DAYS):
        raise InvalidFields.of("override_until", f"override_until must be a time in the future, at most {LONGEST_DAYS} days from now")


def lay(row: Agent, until: datetime | None) -> None:
    """Let the limit that is about to be written to the row hold until then; None: for good.

    Over an override that lasts, the limit to go back to stays the one from before both.
    """
    if until is None:
        row.base_max_parallel_tasks = None
    elif row.base_max_parallel_tasks is None:
        row.base_max_parallel_tasks = row.max_parallel_tasks
    row.override_until = until


def expired() -> QuerySet[Agent]:
    """Living agents whose override has run out and is not ended yet."""
    return Agent.objects.filter(override_until__lte=Now(), deleted_at=None)
