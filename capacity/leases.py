"""Values that pass between the slots, the facade and the runtime."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum

from backlog.drafts import Queued

#: A slot's hard limit is its run's own time-out plus this; `lua/common.lua` has the same number.
HARD_LIMIT_MARGIN_SECONDS = 300


class RenewOutcome(IntEnum):
    """What became of one lease's renewal."""

    REBUILDING = 0
    OK = 1
    REFUSED = 2


class Phase(StrEnum):
    """How far a holder is: its worker hasn't begun, it has, or its lease ended."""

    GRANTED = "granted"
    STARTED = "started"
    LOST = "lost"


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A holder's right to its slot. `token` is the fence; `agent` is the agent's name."""

    agent: str
    execution_id: uuid.UUID
    token: uuid.UUID
    timeout_seconds: int
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class Holder:
    """An execution in a slot, as shown."""

    execution_id: uuid.UUID
    number: int
    token: uuid.UUID
    phase: Phase
    taken_at: datetime
    message_preview: str
    lease_ends_at: datetime


@dataclass(frozen=True, kw_only=True)
class LostHolder:
    """A holder whose lease ended; it keeps its slot until it is released. `started`: its work may have begun."""

    agent: str
    execution_id: uuid.UUID
    token: uuid.UUID
    number: int
    started: bool


@dataclass(frozen=True, kw_only=True)
class FleetHolder:
    """A holder as repair sees it."""

    agent: str
    execution_id: uuid.UUID
    token: uuid.UUID
    number: int
    phase: Phase
    age_seconds: float


@dataclass(frozen=True, kw_only=True)
class Admission:
    """A row that was claimed with a slot and must now be started."""

    lease: Lease

    @property
    def execution_id(self) -> uuid.UUID:
        """The admitted row's id."""
        return self.lease.execution_id


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """It holds a slot."""

    lease: Lease


@dataclass(frozen=True, kw_only=True)
class Acquired:
    """The outcome for the newcomer, and the admissions that the same call made (its own among them)."""

    outcome: Admitted | Queued
    admissions: tuple[Admission, ...]
