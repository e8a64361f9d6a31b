"""What a Celery worker process does beside its tasks: housekeeping, and its own way to end."""

import threading
from typing import Any

import structlog
from celery import bootsteps
from celery.signals import worker_shutting_down

from core.conf import conf

from .housekeeping import Housekeeper
from .runtimes.base import StopReason
from .services.keeper import keeper
from .shutdown import leaving

log = structlog.get_logger(__name__)


class HousekeepingStep(bootsteps.StartStopStep):
    """Starts the housekeeping thread with the worker and ends it with it."""

    requires = {"celery.worker.components:Pool"}  # noqa: RUF012 - Celery's own protocol

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self.thread: Housekeeper | None = None

    def start(self, parent: Any) -> None:
        """Start the thread."""
        self.thread = Housekeeper(threads=parent.concurrency)
        self.thread.start()

    def stop(self, parent: Any) -> None:
        """End the thread."""
        if self.thread is not None:
            self.thread.end()


@worker_shutting_down.connect
def leave(**_kwargs: Any) -> None:
    """Take no next run in place; runs that outlast the grace period are stopped and fail as `worker_lost`.

    Celery's pool of threads waits for its tasks without a limit of its own.
    """
    leaving.set()
    timer = threading.Timer(conf.grace_seconds, keeper.stop_all, args=[StopReason.SHUTDOWN])
    timer.daemon = True
    timer.start()
    # Last: a signal may have come amid another line of the log, and this one fail.
    log.info("worker.leaving", runs=len(keeper.runs()), grace_seconds=conf.grace_seconds)
