"""What is done to a stack and when, from a seed: the same seed gives the same schedule."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """A fault."""

    KILL_WORKER = "kill -9 of a worker"
    LEAVE_WORKER = "SIGTERM to a worker"
    FREEZE_WORKER = "SIGSTOP of a worker"
    CUT_WORKER = "a worker cut off from store, broker and database"
    SHIFT_CLOCK = "a worker with its clock an hour off"
    KILL_WEB = "kill -9 of a web process"
    FREEZE_WEB = "SIGSTOP of a web process"
    FLUSH_STORE = "FLUSHALL"
    KILL_STORE = "kill -9 of the slot store"
    OLD_STORE = "the slot store back from an old snapshot"
    HANG_STORE = "a slot store that does not answer"
    SLOW_STORE = "a slow slot store"
    KILL_BROKER = "kill -9 of the broker"
    DROP_MESSAGES = "messages dropped"
    REPEAT_MESSAGES = "messages delivered again and again"
    STOP_DATABASE = "PostgreSQL stopped"
    HOLD_DATABASE = "a database that does not take writes"


#: How long each lasts, in seconds; leases of a chaos stack last 12. Without an entry it is over at once.
LASTS = {
    Kind.KILL_WORKER: (0.0, 4.0),
    Kind.FREEZE_WORKER: (1.0, 20.0),
    Kind.CUT_WORKER: (1.0, 20.0),
    Kind.SHIFT_CLOCK: (6.0, 12.0),
    Kind.KILL_WEB: (0.0, 2.0),
    Kind.FREEZE_WEB: (0.5, 8.0),
    Kind.KILL_STORE: (0.2, 4.0),
    Kind.OLD_STORE: (0.5, 3.0),
    Kind.HANG_STORE: (0.5, 6.0),
    Kind.SLOW_STORE: (2.0, 6.0),
    Kind.KILL_BROKER: (0.5, 8.0),
    Kind.DROP_MESSAGES: (2.0, 5.0),
    Kind.REPEAT_MESSAGES: (2.0, 5.0),
    Kind.STOP_DATABASE: (0.5, 5.0),
    Kind.HOLD_DATABASE: (0.5, 5.0),
}
WORKER_KINDS = frozenset({Kind.KILL_WORKER, Kind.LEAVE_WORKER, Kind.FREEZE_WORKER, Kind.CUT_WORKER, Kind.SHIFT_CLOCK})
WEB_KINDS = frozenset({Kind.KILL_WEB, Kind.FREEZE_WEB})
STORE_KINDS = frozenset({Kind.FLUSH_STORE, Kind.KILL_STORE, Kind.OLD_STORE, Kind.HANG_STORE, Kind.SLOW_STORE})
BROKER_KINDS = frozenset({Kind.KILL_BROKER, Kind.DROP_MESSAGES, Kind.REPEAT_MESSAGES})
#: A worker that was replaced is left alone until its successor has had time to start.
REST_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: `at` seconds after the start something is done to the `target`-th of its sort, and undone after `lasts`."""

    at: float
    lasts: float
    kind: Kind
    target: int = 0

    @property
    def victim(self) -> str:
        """What can't bear another fault meanwhile."""
        if self.kind in WORKER_KINDS:
            return f"worker {self.target}"
        if self.kind in WEB_KINDS:
            return f"web {self.target}"
        if self.kind in STORE_KINDS:
            return "store"
        return "broker" if self.kind in BROKER_KINDS else "database"

    def __str__(self) -> str:
        lasts = f" for {self.lasts:.1f} s" if self.lasts else ""
        return f"{self.at:7.1f} s  {self.kind} ({self.victim}){lasts}"


def schedule(*, seed: int, seconds: float, kinds: Sequence[Kind], gap: float = 3.0, workers: int = 2, webs: int = 2) -> tuple[Fault, ...]:
    """Faults of all `kinds` in turn, each round in an order of its own, `gap` seconds apart on average; all over after `seconds`."""
    dice = random.Random(seed)
    free_at: dict[str, float] = {}
    faults: list[Fault] = []
    waiting: list[Kind] = []
    at = 1.0 + dice.random()
    while at < seconds:
        if len(waiting) < len(kinds):
            waiting += dice.sample(list(kinds), len(kinds))
        drawn = [_fault(dice, kind, at=at, seconds=seconds, workers=workers, webs=webs) for kind in waiting]
        fault = next((fault for fault in drawn if fault.at >= free_at.get(fault.victim, 0.0)), None)
        if fault is not None:
            waiting.remove(fault.kind)
            faults.append(fault)
            free_at[fault.victim] = fault.at + fault.lasts + REST_SECONDS
        at += dice.uniform(0.3, 1.7) * gap
    return tuple(faults)


def _fault(dice: random.Random, kind: Kind, *, at: float, seconds: float, workers: int, webs: int) -> Fault:
    shortest, longest = LASTS.get(kind, (0.0, 0.0))
    count = workers if kind in WORKER_KINDS else webs if kind in WEB_KINDS else 1
    lasts = min(dice.uniform(shortest, longest), seconds - at)
    return Fault(at=round(at, 2), lasts=round(lasts, 2), kind=kind, target=dice.randrange(count))
