"""Refusals of the gate."""

from typing import TYPE_CHECKING, ClassVar

from backlog.errors import CapacityFull
from core.errors import SlotsUnavailable, Unavailable

if TYPE_CHECKING:
    from .gate import Gate

__all__ = ["AgentPaused", "AtCapacity", "CapacityFull", "FleetAtCapacity", "SessionBusy", "SlotsUnavailable"]


class AgentPaused(Unavailable):
    """Agent '{agent}' is paused"""


class AtCapacity(CapacityFull):
    """Agent '{agent}' is at capacity ({limit} parallel tasks). Try again later."""

    @classmethod
    def of(cls, gate: "Gate") -> "AtCapacity":
        """The refusal that fits `gate`."""
        return cls(agent=gate.agent.name, limit=gate.limit, max_parallel_tasks=gate.limit, max_backlog_depth=gate.agent.max_backlog_depth)


class FleetAtCapacity(CapacityFull):
    """{limit} tasks already running, try again shortly"""

    members: ClassVar[tuple[str, ...]] = ("execution_id", "running", "max_concurrent_tasks")


class SessionBusy(CapacityFull):
    """Session {session_id} already has a task in progress"""

    members: ClassVar[tuple[str, ...]] = ("execution_id",)
