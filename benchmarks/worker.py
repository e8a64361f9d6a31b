"""The Celery application a benchmark's worker is started with: Trinity's own, a runtime that sleeps, and a task that does nothing."""

import time
from pathlib import Path

import django

django.setup()

from runtime import runtimes
from runtime.runtimes.base import Emit, Result, Run, Stop
from trinity.celery import app

from . import marks

KIND = "sleep"
STAMP = "benchmarks.stamp"
HOLD_POLL_SECONDS = 0.002


class SleepRuntime:
    """Does what the message says: `sleep LABEL SECONDS`, or `hold LABEL PATH` until that file is there."""

    def run(self, run: Run, emit: Emit, stop: Stop) -> Result:
        """Sleep, and leave a mark."""
        began = marks.now()
        verb, label, what = run.message.split()
        if verb == "hold":
            while not Path(what).exists() and not stop.wait(HOLD_POLL_SECONDS):
                pass
        elif float(what):
            time.sleep(float(what))
        marks.write(label, began, marks.now())
        return Result(response="done")

    def cancel(self, run: Run) -> bool:
        """Nothing outlives its thread."""
        return True


runtimes._RUNTIMES[KIND] = SleepRuntime()


@app.task(name=STAMP, ignore_result=True)
def stamp(label: str, published: float) -> None:
    """Mark the time from the publish to here."""
    marks.write(label, published, marks.now())
