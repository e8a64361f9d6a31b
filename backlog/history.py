"""Reads of what ran and waited when, for as long as the rows are kept."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models import BigIntegerField, F, Func, QuerySet

from .models import Execution, Status

#: SQLite compares moments as text, and one that it stamped itself has fewer digits than the same one sent.
_LEAST = timedelta(microseconds=1)


class _ByNoIndex(Func):
    """The column itself, which SQLite then looks for by no index.

    It knows nothing of how rows are spread, and would read an agent's whole history for one hour of it.
    """

    template = "%(expressions)s"
    output_field = BigIntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """With a plus in front."""
        return self.as_sql(compiler, connection, template="+%(expressions)s", **context)


def ended_of(agent_ids: Collection[int], *, begin: datetime, end: datetime) -> QuerySet[Execution]:
    """Those that had been put in line before `end` and ended after `begin`: whatever overlaps the span, but for what goes on."""
    ended = Execution.objects.filter(completed_at__gt=begin, queued_at__lte=end - _LEAST)
    return ended.alias(whose=_ByNoIndex(F("agent_id"))).filter(whose__in=agent_ids)


def running_of(agent_ids: Collection[int], *, end: datetime) -> QuerySet[Execution]:
    """Those put in line before `end` that hold a slot and go on."""
    # That it holds a slot follows from its status; said, because the index is of those.
    return Execution.objects.filter(status=Status.RUNNING, slot_token__isnull=False, queued_at__lte=end - _LEAST, agent_id__in=agent_ids)


def waiting_of(agent_ids: Collection[int], *, end: datetime) -> QuerySet[Execution]:
    """Those put in line before `end` that still wait."""
    return Execution.objects.filter(status=Status.QUEUED, queued_at__lte=end - _LEAST, agent_id__in=agent_ids)
