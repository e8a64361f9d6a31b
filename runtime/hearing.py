"""Whether this worker is in touch with its broker; one that has not been for too long takes no new work and leaves.

A worker can be connected and hear nothing: a socket whose other end is gone, a poll that was never sent again after a
reconnect. Messages wait then, or go to nobody, while the worker looks well. So what counts is not the connection but the
last answer: kombu's Redis transport polls its queues each second, and each poll is answered, with a message or without.
Other transports notice a dead connection by their heartbeats; there the connection counts.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from celery import bootsteps
from celery.signals import task_postrun, task_prerun
from kombu.transport.virtual import Empty

from core.conf import conf

from .services.keeper import keeper
from .shutdown import leaving

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
#: A worker that was told to end and has nothing left to do is gone by then, or is stuck for good.
EXIT_SECONDS = 30.0
#: The name of the handler that reads the answers to polls (kombu.transport.redis).
POLL = "BRPOP"


class Ear:
    """What this process knows of its connection to the broker."""

    def __init__(self) -> None:
        self._consumer: Any = None
        self._heard = False
        self._busy = 0
        self._lock = threading.Lock()

    def listen(self, consumer: Any) -> None:
        """The consumer has connected: from now on each answer to one of its polls is noted."""
        handlers = _handlers(consumer)
        if POLL in handlers:
            handlers[POLL] = self._noting(handlers[POLL])
        self._consumer = consumer

    def lose(self) -> None:
        """The consumer's connection is gone, or about to be closed."""
        self._consumer = None

    def in_touch(self) -> bool:
        """Whether the broker has been heard since the last call, or isn't listened to, for every thread has work."""
        heard, self._heard = self._heard, False
        consumer = self._consumer
        if consumer is None or consumer.connection is None:
            return False
        if POLL not in _handlers(consumer):
            return bool(consumer.connection.connected)
        return heard or self._busy >= consumer.pool.limit

    def began(self, **_kwargs: Any) -> None:
        """A thread has work."""
        with self._lock:
            self._busy += 1

    def ended(self, **_kwargs: Any) -> None:
        """A thread is free."""
        with self._lock:
            self._busy -= 1

    @property
    def busy(self) -> bool:
        """Whether anything goes on here."""
        return self._busy > 0 or bool(keeper.runs())

    def _noting(self, read: Callable[[], Any]) -> Callable[[], Any]:
        def noted() -> Any:
            try:
                answer = read()
            except Empty:
                self._heard = True
                raise
            self._heard = True
            return answer

        return noted


def _handlers(consumer: Any) -> dict[str, Any]:
    task_consumer = consumer.task_consumer
    return {} if task_consumer is None else getattr(task_consumer.channel, "handlers", {})


ear = Ear()
# By Celery's own count a worker can be busy with tasks that it forgot at a reconnect.
task_prerun.connect(ear.began)
task_postrun.connect(ear.ended)


class EarStep(bootsteps.StartStopStep):
    """Tells the ear of each connection of the consumer."""

    requires = {"celery.worker.consumer.tasks:Tasks"}  # noqa: RUF012 - Celery's own protocol

    def start(self, parent: Any) -> None:
        """Connected."""
        ear.listen(parent)

    def stop(self, parent: Any) -> None:
        """Not any more."""
        ear.lose()


class Listener(threading.Thread):
    """Watches the ear, and ends the process when it was deaf for too long."""

    def __init__(self, *, stop_consuming: Callable[[], None]) -> None:
        super().__init__(name="listener", daemon=True)
        self._stop_consuming = stop_consuming
        self._ending = threading.Event()

    def run(self) -> None:
        """Each second, until the worker ends of itself."""
        silent, looked_at = 0.0, time.monotonic()
        while not self._ending.wait(TICK_SECONDS):
            # Not what has passed: a process that was frozen has heard nothing, and nothing is wrong with its ears.
            passed = min(time.monotonic() - looked_at, 2 * TICK_SECONDS)
            looked_at = time.monotonic()
            silent = 0.0 if ear.in_touch() else silent + passed
            if silent >= conf.broker_silence_seconds:
                self._leave(silent)
                return

    def end(self) -> None:
        """The worker ends of itself."""
        self._ending.set()

    def _leave(self, silent: float) -> None:
        """Take no new work, let every run end however long it takes, then go: whoever keeps workers up starts another."""
        log.error("worker.out_of_touch", seconds=round(silent), runs=len(keeper.runs()))
        leaving.set()
        self._stop_consuming()
        while ear.busy:
            if self._ending.wait(TICK_SECONDS):
                return
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(EXIT_SECONDS)
        log.error("worker.stuck")
        os._exit(os.EX_SOFTWARE)
