"""What the tables hold: executions, agents, the fleet's settings with their past."""

import uuid
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tests.invariants import SeenAgent, SeenRow

T = TypeVar("T")

QUEUED, RUNNING, SUCCESS, FAILED, CANCELLED = "queued", "running", "success", "failed", "cancelled"
TERMINAL = (SUCCESS, FAILED, CANCELLED)


class Setting(Generic[T]):
    """A value, and what it was before."""

    def __init__(self, value: T) -> None:
        self._past: list[tuple[int, T]] = [(0, value)]

    @property
    def now(self) -> T:
        """The value in force."""
        return self._past[-1][1]

    def change(self, value: T, *, at: int) -> None:
        """Another value from this moment on."""
        self._past.append((at, value))

    def since(self, moment: int) -> set[T]:
        """Every value that was in force at that moment or after it."""
        ends = [began for began, _ in self._past[1:]]
        return {value for (_, value), end in zip(self._past[:-1], ends, strict=True) if end > moment} | {self.now}


def named(agent: str) -> str:
    """The name of an agent, by its key: `a` was deleted, `a'` has its name."""
    return agent.rstrip("'")


@dataclass(eq=False)
class Row:
    """One execution."""

    id: uuid.UUID
    key: int
    agent: str
    http: bool
    priority: int
    session: int | None
    #: What a follow-up is.
    front: bool = False
    #: Outside the depth.
    retry: bool = False
    #: Refused rather than put in line.
    reject: bool = False
    #: Can't be run: whoever submitted it may not any more, its session was closed.
    unfit: bool = False
    status: str = ""
    startable: bool = False
    token: uuid.UUID | None = None
    number: int = 0
    granted_at: int = 0
    started: bool = False
    cancel: bool = False
    queued_at: int = 0
    #: Since when it has been startable in line without a break.
    in_line_since: int = 0
    begun: int = 0

    @property
    def place(self) -> tuple[bool, int, int, int]:
        """The order of the line."""
        return (not self.front, -self.priority, self.queued_at, self.key)

    def seen(self) -> SeenRow:
        """As the checker reads it."""
        return SeenRow(
            id=self.id, agent=named(self.agent), status=self.status, slot_token=self.token, slot_number=self.number,
            startable=self.startable, started=self.started, queued_at=(self.queued_at, self.key), priority=self.priority,
            front=self.front, retry=self.retry, session=self.session,
        )  # fmt: skip


@dataclass(eq=False)
class AgentRow:
    """An agent's settings."""

    limit: Setting[int]
    depth: int = 50
    paused: Setting[bool] = field(default_factory=lambda: Setting(False))
    #: When it was last given a place of the fleet's.
    served_at: int = 0
    deleted: Setting[bool] = field(default_factory=lambda: Setting(False))

    def seen(self, agent: str, *, fleet_paused: bool) -> SeenAgent:
        """As the checker reads it."""
        return SeenAgent(name=named(agent), limit=self.limit.now, paused=self.paused.now or fleet_paused, depth=self.depth)


@dataclass(eq=False)
class Fleet:
    """The fleet's settings."""

    cap: Setting[int | None] = field(default_factory=lambda: Setting(None))
    paused: Setting[bool] = field(default_factory=lambda: Setting(False))


@dataclass(frozen=True)
class Gate:
    """What an admission reads at once, and when."""

    limit: int
    cap: int | None
    paused: bool
    #: Whether the line has no room for another.
    line_full: bool
    head: Row | None
    at: int
