"""Agents' pasts: runs that have ended, runs that began a while ago."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from backlog.models import Execution, Status
from fleet.models import Agent


def remember_runs(agent: Agent, seconds: Sequence[float], *, ended_ago: timedelta = timedelta(minutes=1)) -> None:
    """Let the agent have finished a run of each of these lengths."""
    ended = timezone.now() - ended_ago
    Execution.objects.bulk_create(
        Execution(
            agent=agent, agent_name=agent.name, status=Status.SUCCESS, message="earlier", timeout_seconds=900,
            started_at=ended - timedelta(seconds=length), completed_at=ended,
        )
        for length in seconds
    )  # fmt: skip


def begin(answer: Any, *, seconds_ago: float) -> Execution:
    """Let the work of the execution that a submit's answer names have begun so long ago."""
    row = Execution.objects.get(pk=answer.json()["execution_id"])
    row.started_at = timezone.now() - timedelta(seconds=seconds_ago)
    row.save(update_fields=["started_at"])
    return row
