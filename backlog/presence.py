"""Rows that wait only while their caller is there: the turns of conversations.

`seen_at` is when one of their callers was last seen to wait; it is null for every other row. A row whose caller has not been
seen for `SEEN_SECONDS` is out of the line for good: nobody starts it, a caller who is seen later does not bring it back, and
repair cancels it. So a web process that is killed leaves nothing behind that would run for nobody.
"""

import uuid
from collections.abc import Iterable
from datetime import timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from .models import Execution, Status

SEEN_SECONDS = 15
#: Turns of one agent that may wait at once.
MOST_WAITING = 3


def attended() -> Q:
    """Rows that need no caller, or whose caller is there, on the database's clock."""
    return Q(seen_at=None) | Q(seen_at__gte=Now() - timedelta(seconds=SEEN_SECONDS))


def waiting_turns(agent_id: int) -> QuerySet[Execution]:
    """The agent's turns in line whose callers are there."""
    return Execution.objects.filter(attended(), agent_id=agent_id, status=Status.QUEUED, seen_at__isnull=False)


def forsaken() -> QuerySet[Execution]:
    """Rows in line whose callers have gone."""
    return Execution.objects.filter(status=Status.QUEUED, seen_at__lt=Now() - timedelta(seconds=SEEN_SECONDS))


def note_seen(execution_ids: Iterable[uuid.UUID]) -> int:
    """Record, in one statement, that callers of these rows wait now; returns of how many that have not begun.

    Also of those that hold a slot: it may be taken from them before they begin, and they are in line again.
    """
    waiting = Execution.objects.filter(attended(), pk__in=list(execution_ids), seen_at__isnull=False, started_at=None)
    return waiting.filter(status__in=(Status.QUEUED, Status.RUNNING)).update(seen_at=Now())
