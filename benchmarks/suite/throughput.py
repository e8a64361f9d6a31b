"""Tasks a second through ten slots when they do nothing, beside Celery tasks that do nothing in the same pool."""

import secrets

from celery import current_app
from django.db import connection

from .. import fleet
from ..figures import Better, Figure, median, spread
from ..ground import Process
from ..marks import Mark
from . import Options

SLOTS, TASKS = 10, 200
STAMP = "benchmarks.stamp"


def measure(options: Options) -> list[Figure]:
    """Rounds in turns, in one worker."""
    fleet.open_gate()
    goal = 0.3 if connection.vendor == "postgresql" else 0.4
    with fleet.running("worker", fleet.worker()) as worker:
        pairs = [(_through_slots(), _plain(worker)) for _ in range(options.rounds)]
    mine, others = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    ratios = [a / b for a, b in pairs]
    return [
        Figure(
            what=f"tasks/s through {SLOTS} slots, beside plain Celery no-op tasks/s", ours=f"{mine:.0f}/s", floor=f"{others:.0f}/s",
            ratio=median(ratios), goal=goal, better=Better.HIGHER,
            note=f"{len(pairs)} interleaved rounds of {TASKS}, {spread(ratios)}",
        )
    ]  # fmt: skip


def _through_slots() -> float:
    return _rate(fleet.slots_line(agent=fleet.make_agent(slots=SLOTS), slots=SLOTS, tasks=TASKS, seconds=0))


def _plain(worker: Process) -> float:
    """The worker sleeps while they are published, so that it is not measured how fast that goes."""
    label = f"plain-{secrets.token_hex(4)}"
    worker.freeze()
    try:
        for _ in range(TASKS):
            current_app.send_task(STAMP, args=[label, 0.0])
    finally:
        worker.thaw()
    return _rate(fleet.marked(label, TASKS))


def _rate(marks: list[Mark]) -> float:
    ended = sorted(mark.ended for mark in marks)
    return (len(ended) - 1) / (ended[-1] - ended[0])
