"""Refusals of the line."""

from typing import ClassVar

from core.errors import Busy


class CapacityFull(Busy):
    """Agent '{agent}' is at capacity ({limit} parallel tasks). Try again later."""

    code = "at_capacity"
    members: ClassVar[tuple[str, ...]] = ("execution_id", "active_slots", "max_parallel_tasks", "queued", "max_backlog_depth")


class BacklogFull(CapacityFull):
    """Agent '{agent}' is at capacity ({limit} parallel tasks) and its backlog is full ({depth} queued). Try again later."""

    code = "backlog_full"


class QueueFull(CapacityFull):
    """Agent '{agent}' has {waiting} conversations waiting. Try again later."""

    code = "queue_full"


class KeyTaken(Exception):
    """The idempotency key, or the id itself, was inserted by another request first; its execution answers."""
