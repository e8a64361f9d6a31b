"""Asking whoever has the work of a run that no process of ours carries any more to end it."""

import uuid

from backlog.models import Execution
from fleet import reach

from ..runtimes import runtime_for
from ..runtimes.base import Run


def ask_to_end(row: Execution, *, token: uuid.UUID) -> bool:
    """Whether the work of the started row is known to be over: asks once, where it began, though its agent be elsewhere by now.

    Where that was changed at the very moment of its start both places have to say so.
    """
    assert row.started_at is not None  # noqa: S101 - callers have looked
    ways = reach.ways_of(row.agent, granted_at=row.granted_at or row.started_at, started_at=row.started_at)
    # A deleted agent's settings are gone once nothing of it holds a slot.
    over = [bool(way.settings) and runtime_for(way.kind).cancel(_run(row, way, token=token)) for way in ways]
    return all(over)


def _run(row: Execution, way: reach.Way, *, token: uuid.UUID) -> Run:
    return Run(
        execution_id=row.pk, token=token, agent_name=row.agent_name, settings=way.settings,
        message="", timeout_seconds=row.timeout_seconds,
    )  # fmt: skip
