"""How full three slots stay while a line waits for them: ideal span over actual span, beside docket."""

import asyncio
import secrets
from collections.abc import Sequence

from .. import docket_peer, fleet
from ..figures import Better, Figure, median, spread
from ..ground import python
from ..marks import Mark
from . import Options

SLOTS = docket_peer.SLOTS


def measure(options: Options) -> list[Figure]:
    """Short and longer tasks, in turns with docket on the same store."""
    fleet.open_gate()
    with fleet.running("worker", fleet.worker()), fleet.running("docket", python("-m", "benchmarks.docket_peer")):
        _trinity(tasks=6, seconds=0.05)
        _docket(tasks=6, seconds=0.05)
        return [
            *_compared(tasks=200, seconds=0.05, goal=0.85, rounds=options.rounds),
            *_compared(tasks=200 if options.full else 60, seconds=0.5, goal=0.98, rounds=max(2, options.rounds // 2)),
        ]


def _compared(*, tasks: int, seconds: float, goal: float, rounds: int) -> list[Figure]:
    pairs = [(_trinity(tasks=tasks, seconds=seconds), _docket(tasks=tasks, seconds=seconds)) for _ in range(rounds)]
    mine, others = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    ratios = [a / b for a, b in pairs]
    what, note = f"{tasks} tasks of {seconds * 1000:.0f} ms on {SLOTS} slots", f"{rounds} interleaved rounds"
    return [
        Figure(
            what=f"utilisation, {what}", ours=f"{mine:.3f}", floor="1 (ideal)", ratio=mine, goal=goal, better=Better.HIGHER,
            note=f"{note}, {spread([pair[0] for pair in pairs])}",
        ),
        Figure(
            what=f"utilisation beside docket, {what}", ours=f"{mine:.3f}", floor=f"{others:.3f}",
            ratio=median(ratios), goal=1.0, better=Better.HIGHER, note=f"{note}, {spread(ratios)}",
        ),
    ]  # fmt: skip


def _trinity(*, tasks: int, seconds: float) -> float:
    agent = fleet.make_agent(slots=SLOTS)
    return _used(fleet.slots_line(agent=agent, slots=SLOTS, tasks=tasks, seconds=seconds), seconds=seconds)


def _docket(*, tasks: int, seconds: float) -> float:
    hold, label = fleet.Hold(), f"docket-{secrets.token_hex(4)}"
    asyncio.run(docket_peer.add([hold.message] * SLOTS + [f"sleep {label} {seconds}"] * tasks))
    hold.let_go()
    return _used(fleet.marked(label, tasks), seconds=seconds)


def _used(marks: Sequence[Mark], *, seconds: float) -> float:
    span = max(mark.ended for mark in marks) - marks[0].began
    return len(marks) * seconds / SLOTS / span
