"""What a slot costs on the store, and whether a crowd ever gets more of them than there are."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from capacity import slots
from capacity.leases import Lease
from core.ids import new_id, new_token
from core.redis import Script

from .. import fleet
from ..figures import Figure, median, ms, spread
from . import Options

BLOCKS, CALLS = 24, 150
THREADS, SLOTS = 32, 3
_NO_OP = "return 1\n"


def measure(options: Options) -> list[Figure]:
    """Acquire and release beside two scripts that do nothing; then a race."""
    fleet.open_gate()
    return [_cost(), _race(attempts=1_000_000 if options.full else 100_000)]


def _cost() -> Figure:
    ours, floor = _ours(), _floor()
    for warm in (ours, floor):
        _timed(warm)
    pairs = []
    for block in range(BLOCKS):
        # The order alternates, so that neither always profits from the other's warmth.
        first, second = (ours, floor) if block % 2 else (floor, ours)
        times = {first: _timed(first), second: _timed(second)}
        pairs.append((times[ours], times[floor]))
    mine, others = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    ratios = [a / b for a, b in pairs]
    return Figure(
        what="acquire + release, one connection, beside two no-op scripts",
        ours=ms(mine), floor=ms(others), ratio=median(ratios), goal=1.5,
        note=f"{BLOCKS} interleaved blocks, {spread(ratios)}",
    )  # fmt: skip


def _timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS


def _lease(agent: str) -> Lease:
    return Lease(agent=agent, execution_id=new_id(), token=new_token(), timeout_seconds=900)


def _ours() -> Callable[[], None]:
    def call() -> None:
        lease = _lease("bench-cost")
        slots.acquire(lease=lease, limit=3, fleet_limit=None, preview="what is asked")
        slots.release(lease=lease)

    return call


def _floor() -> Callable[[], None]:
    path = Path(fleet.directory()) / "no_op.lua"
    path.write_text(_NO_OP)
    script = Script(path)

    def call() -> None:
        lease = _lease("bench-cost")
        execution_id, token = str(lease.execution_id), str(lease.token)
        places = [f"agent:slots:{lease.agent}", f"agent:holders:{lease.agent}", f"agent:slot:{lease.agent}:{execution_id}"]
        common = ["agent:epoch", "agent:versions", "agent:leases", *places]
        script(keys=common, args=["agent:hints", lease.agent, execution_id, token, 3, "", 900, b"what is asked"])
        script(keys=common, args=["agent:hints", lease.agent, execution_id, token])

    return call


class _Crowd:
    """Threads that take and give, and what they saw. A fourth holder is given away by its slot number: the lowest free one."""

    def __init__(self, attempts: int) -> None:
        self.left, self.taken, self.wrong = attempts, 0, 0
        self.inside: dict[int, int] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        while self._another():
            lease = _lease("bench-race")
            taken = slots.acquire(lease=lease, limit=SLOTS, fleet_limit=None, preview="")
            if taken.outcome != slots.TakeOutcome.ACQUIRED:
                continue
            self._enter(taken.number)
            if random.random() < 0.2:
                time.sleep(0.001)
            self._leave(taken.number)
            slots.release(lease=lease)

    def _another(self) -> bool:
        with self._lock:
            self.left -= 1
            return self.left >= 0

    def _enter(self, number: int) -> None:
        with self._lock:
            self.taken += 1
            self.inside[number] = self.inside.get(number, 0) + 1
            self.wrong += number > SLOTS or self.inside[number] > 1 or sum(self.inside.values()) > SLOTS

    def _leave(self, number: int) -> None:
        with self._lock:
            self.inside[number] -= 1


def _race(*, attempts: int) -> Figure:
    crowd = _Crowd(attempts)
    threads = [threading.Thread(target=crowd.run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Figure(
        what=f"over-admissions, {THREADS} threads racing for {SLOTS} slots",
        ours=str(crowd.wrong), floor=f"{crowd.taken:,} taken", ratio=float(crowd.wrong), goal=0.0, note=f"{attempts:,} attempts",
    )  # fmt: skip
