"""What a Celery worker process does beside its tasks: housekeeping, listening to its broker, and its own way to end."""

import threading
from typing import Any

import structlog
from celery import bootsteps
from celery.signals import worker_shutting_down

from core.conf import conf

from .hearing import Listener
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


class ListenerStep(bootsteps.StartStopStep):
    """Starts the thread that watches whether the broker is heard, and ends it with the worker."""

    requires = {"celery.worker.components:Pool"}  # noqa: RUF012 - Celery's own protocol

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self.thread: Listener | None = None

    def start(self, parent: Any) -> None:
        """Start the thread."""
        self.thread = Listener(stop_consuming=lambda: _stop_consuming(parent))
        self.thread.start()

    def stop(self, parent: Any) -> None:
        """End the thread."""
        if self.thread is not None:
            self.thread.end()


def _stop_consuming(worker: Any) -> None:
    """Take no message any more, not from a connection that comes back later either."""
    queues, consumer = worker.app.amqp.queues, worker.consumer
    names = list(queues.consume_from)
    queues.deselect(names)

    def cancel() -> None:
        if consumer.task_consumer is not None:
            for name in names:
                consumer.task_consumer.cancel_by_queue(name)

    consumer.call_soon(cancel)


_told_to_end = threading.Event()


@worker_shutting_down.connect
def leave(*, how: str = "Warm", **_kwargs: Any) -> None:
    """Take no next run in place; runs that outlast the grace period are stopped and fail as `worker_lost`.

    Celery's pool of threads waits for its tasks without a limit of its own. Told twice, or to be quick, the grace is over.
    """
    grace_seconds = 0 if _told_to_end.is_set() or how == "Cold" else conf.grace_seconds
    _told_to_end.set()
    leaving.set()
    timer = threading.Timer(grace_seconds, keeper.stop_all, args=[StopReason.SHUTDOWN])
    timer.daemon = True
    timer.start()
    # Last: a signal may have come amid another line of the log, and this one fail.
    log.info("worker.leaving", runs=len(keeper.runs()), grace_seconds=grace_seconds)
