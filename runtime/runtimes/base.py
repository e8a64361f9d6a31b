"""The protocol between a run and the way its agent is reached."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class StopReason(StrEnum):
    """Why a run is told to stop."""

    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    SHUTDOWN = "worker_lost"


class Stop:
    """The signal to end a run, set once by the keeper; and the time until which its lease is known to hold.

    A runtime waits on it instead of sleeping. `deadline` is on this host's monotonic clock; the keeper moves it forward
    with every renewal, and no work is sent out past it.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._extended: list[Callable[[float], None]] = []
        self.reason: StopReason | None = None
        self.deadline = float("inf")

    def __call__(self, reason: StopReason) -> None:
        """Tell the run to stop; the first reason stays."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            listeners = list(self._listeners)
        self._event.set()
        for listener in listeners:
            listener()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is set, after at most `seconds`."""
        return self._event.wait(seconds)

    def is_set(self) -> bool:
        """Whether the run must end."""
        return self._event.is_set()

    def lease_holds(self) -> bool:
        """Whether the lease is known to hold still."""
        return time.monotonic() < self.deadline

    def extend(self, deadline: float) -> None:
        """Move the deadline forward, and tell whoever passes it on: the keeper's call after each renewal.

        Never back: the renewal and the look at the row come from two threads, and the later word holds.
        """
        with self._lock:
            if self.deadline != float("inf"):
                deadline = max(deadline, self.deadline)
            self.deadline = deadline
            listeners = list(self._extended)
        for listener in listeners:
            listener(deadline)

    def on_extend(self, listener: Callable[[float], None]) -> None:
        """Call `listener` (quick, never blocking) with every new deadline, and at once with the present one."""
        with self._lock:
            self._extended.append(listener)
            deadline = self.deadline
        listener(deadline)

    def on_set(self, listener: Callable[[], None]) -> None:
        """Call `listener` (quick, from the keeper's thread) when it is set; at once if it is already."""
        with self._lock:
            if self.reason is None:
                self._listeners.append(listener)
                return
        listener()


@dataclass(frozen=True, kw_only=True)
class Run:
    """All a runtime needs to know of an execution: plain values, no row, no database."""

    execution_id: uuid.UUID
    token: uuid.UUID
    agent_name: str
    settings: dict[str, Any]
    message: str
    timeout_seconds: int
    session_id: uuid.UUID | None = None
    model: str = ""
    system_prompt: str = ""
    allowed_tools: list[str] | None = None
    max_turns: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended. `error_code` "" is success, else one of api.md's codes; `usage` has input_tokens, output_tokens, cost_usd.

    `over` is False where the outcome is known but not that the work has ended: its slot must wait for that.
    """

    response: str | None = None
    error_code: str = ""
    error: str = ""
    usage: dict[str, Any] | None = None
    over: bool = True

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return not self.error_code


#: Takes one event of the run: its type and its data (a JSON object). Whether it will take another one.
Emit = Callable[[str, dict[str, Any]], bool]


class Runtime(Protocol):
    """One way to reach an agent."""

    def run(self, run: Run, emit: Emit, stop: Stop) -> Result:
        """Do the work and wait for its end, with no database connection held; never raises for the agent's faults.

        Ends by itself after `run.timeout_seconds` (`timeout`) and soon after `stop` is set (its reason as error_code);
        when it returns, the work is known to be over, or the result says that it isn't.
        """
        ...

    def cancel(self, run: Run) -> bool:
        """Stop a run that no process of ours carries any more; True when it is known to be over."""
        ...
