"""What an agent of the tests saw: written by the agent alone, so that it testifies against Trinity and not with it."""

import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Call:
    """One task that the agent began."""

    execution_id: str
    body: dict[str, Any]
    headers: dict[str, str]
    ended: bool = False
    #: The port at Trinity's end of the connection.
    port: int = 0
    over: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def message(self) -> str:
        """The task's message."""
        return self.body["message"]


class Ledger:
    """The tasks of one agent, in the order they began; `peak` is the most that ever went on at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.peak = 0
        self._calls: list[Call] = []
        self._active = 0
        self._lock = threading.Lock()

    def begin(self, call: Call) -> None:
        """Write down a task that begins."""
        with self._lock:
            self._calls.append(call)
            self._active += 1
            self.peak = max(self.peak, self._active)

    def end(self, call: Call) -> None:
        """Write down that its work is over."""
        with self._lock:
            self._active -= 1
            call.ended = True

    @property
    def calls(self) -> list[Call]:
        """Every task that began."""
        with self._lock:
            return list(self._calls)

    @property
    def started(self) -> list[str]:
        """Their execution ids: one that is in it twice ran twice."""
        return [call.execution_id for call in self.calls]

    @property
    def ended(self) -> list[str]:
        """The execution ids whose work is over."""
        return [call.execution_id for call in self.calls if call.ended]

    @property
    def active(self) -> int:
        """How many go on right now."""
        with self._lock:
            return self._active

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The request bodies."""
        return [call.body for call in self.calls]

    @property
    def messages(self) -> list[str]:
        """The messages, in the order their work began."""
        return [call.message for call in self.calls]
