"""How long a slot stands empty between two runs, beside one plain hop through Celery."""

import secrets
import time
from itertools import pairwise

from celery import current_app
from django.db import connection

from .. import fleet
from ..figures import Figure, median, ms, percentile, spread
from . import Options

#: Below the number of runs that a thread hands itself, so that every one of them is in place.
RUNS = 40
PAUSE_SECONDS = 0.02
STAMP = "benchmarks.stamp"


def measure(options: Options) -> list[Figure]:
    """Rounds of handovers in turns with rounds of hops, in one worker."""
    fleet.open_gate()
    on_postgres = connection.vendor == "postgresql"
    with fleet.running("worker", fleet.worker()):
        rounds = [(_handovers(), _hops()) for _ in range(options.rounds * 2)]
    gaps, hops = [gap for pair in rounds for gap in pair[0]], [hop for pair in rounds for hop in pair[1]]
    goal, note = (
        (2.5 if on_postgres else 1.5),
        f"{len(gaps)} handovers, {len(hops)} hops, interleaved; rounds' medians {spread([median(a) / median(b) for a, b in rounds])}",
    )
    return [
        Figure(
            what="release → next start in place, beside publish → task body, p50",
            ours=ms(median(gaps)), floor=ms(median(hops)), ratio=median(gaps) / median(hops), goal=goal, note=note,
        ),
        Figure(
            what="release → next start in place, beside publish → task body, p99",
            ours=ms(percentile(gaps, 0.99)), floor=ms(percentile(hops, 0.99)), ratio=percentile(gaps, 0.99) / percentile(hops, 0.99),
            note=note,
        ),
    ]  # fmt: skip


def _handovers() -> list[float]:
    ended = fleet.slots_line(agent=fleet.make_agent(slots=1), slots=1, tasks=RUNS, seconds=PAUSE_SECONDS)
    return [following.began - done.ended for done, following in pairwise(ended)]


def _hops() -> list[float]:
    label = f"hop-{secrets.token_hex(4)}"
    for _ in range(RUNS):
        current_app.send_task(STAMP, args=[label, time.monotonic()])
        time.sleep(PAUSE_SECONDS)
    return [mark.ended - mark.began for mark in fleet.marked(label, RUNS)]
