"""Refusals of the gate."""

from typing import TYPE_CHECKING, ClassVar

from backlog.errors import CapacityFull
from backlog.forecast import jittered
from core.errors import SlotsUnavailable, Unavailable

if TYPE_CHECKING:
    from .gate import Gate

__all__ = ["AgentPaused", "AtCapacity", "CapacityFull", "FleetAtCapacity", "SessionBusy", "SlotsUnavailable"]


#: Nobody knows when a pause ends: often enough to notice, seldom enough to cost nothing.
PAUSED_RETRY_SECONDS = 30


class AgentPaused(Unavailable):
    """Agent '{agent}' is paused"""

    def __init__(self, *, agent: str) -> None:
        super().__init__(agent=agent, retry_after=jittered(PAUSED_RETRY_SECONDS))


class AtCapacity(CapacityFull):
    """Agent '{agent}' is at capacity ({limit} parallel tasks). Try again later."""

    @classmethod
    def of(cls, gate: "Gate") -> "AtCapacity":
        """The refusal that fits `gate`."""
        return cls(agent=gate.agent.name, limit=gate.limit, max_parallel_tasks=gate.limit, max_backlog_depth=gate.agent.max_backlog_depth)


class FleetAtCapacity(CapacityFull):
    """{limit} tasks already running, try again shortly"""

    members: ClassVar[tuple[str, ...]] = ("execution_id", "running", "max_concurrent_tasks")

    @classmethod
    def of(cls, gate: "Gate") -> "FleetAtCapacity":
        """The refusal that fits `gate`, which has a cap."""
        return cls(limit=gate.fleet_limit, running=gate.fleet_limit, max_concurrent_tasks=gate.fleet_limit)


class SessionBusy(CapacityFull):
    """Session {session_id} already has a task in progress"""
