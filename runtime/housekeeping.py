"""Housekeeping: the sweep, the reconciler and retention, on a thread of every worker process.

One process at a time does it, by a lock that only saves work: two at once do no harm. It never runs in the pool that
long runs can fill.
"""

import os
import threading
import time
from collections.abc import Callable

import structlog
from django.core.cache import cache
from django.db import Error, close_old_connections

from capacity.errors import SlotsUnavailable
from capacity.manager import CapacityManager
from core.conf import conf
from core.redis import RedisError

from . import dispatch, heartbeat
from .services import agents, controls, firing, repair, retention

log = structlog.get_logger(__name__)
manager = CapacityManager()

LOCK = "housekeeping"
#: Outlives a pass by far less than a lease, so that a dead housekeeper is soon replaced.
LOCK_SECONDS = 10
RECONCILED = "housekeeping:reconciled"
FORGOT = "housekeeping:forgot"
FORGET_SECONDS = 3600


def sweep() -> None:
    """End overrides, fill an emptied gate, take slots back from lost runs, fire schedules, and start what can start.

    Then publish what was granted but not heard of.
    """
    controls.end_overrides()  # first: nothing below is to be admitted by a limit that holds no more
    dispatch.start(manager.rebuild())
    repair.repair_lost()
    repair.expire_waiting()
    repair.cancel_forsaken()
    agents.finish_deletions()
    firing.fire_due()
    dispatch.start(manager.drain_all())
    repair.dispatch_again()


def reconcile() -> None:
    """Compare rows and slots, in both directions."""
    repair.compare()
    repair.repair_sessions()


def reconcile_in_turn() -> None:
    """`reconcile` unless another process has within this interval: however many there are, the fleet is compared once."""
    if cache.add(RECONCILED, True, 0.9 * conf.reconcile_seconds):
        reconcile()


def forget() -> None:
    """Delete what is old: once an hour, by whichever process comes first; sooner where there was too much for one pass."""
    if cache.add(FORGOT, True, FORGET_SECONDS) and not retention.forget_old():
        cache.delete(FORGOT)


def run_once() -> None:
    """One whole pass, whoever holds the lock."""
    sweep()
    reconcile()
    forget()


class Housekeeper(threading.Thread):
    """Runs both passes at their intervals until told to end."""

    def __init__(self, *, threads: int | None = None) -> None:
        """`threads` are those of this process's pool."""
        super().__init__(name="housekeeping", daemon=True)
        self._threads = threads or conf.worker_threads
        self._ending = threading.Event()
        self._owner = f"{os.uname().nodename}:{os.getpid()}"

    def run(self) -> None:
        """At once at boot, then every `sweep_seconds` and `reconcile_seconds`."""
        reconcile_at = 0.0
        while not self._ending.is_set():
            began = time.monotonic()
            heartbeat.beat(threads=self._threads)
            if self._attempt(sweep) and began >= reconcile_at and self._attempt(reconcile_in_turn):
                reconcile_at = began + conf.reconcile_seconds
                self._attempt(forget)
            self._ending.wait(max(0.05, conf.sweep_seconds - (time.monotonic() - began)))

    def end(self) -> None:
        """Ask it to end after the pass under way."""
        self._ending.set()
        heartbeat.stop()

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Whether the pass was made, by this process or the one that holds the lock.

        Whatever goes wrong, the next pass must come: nobody else would notice that this thread has ended.
        """
        try:
            if cache.add(LOCK, self._owner, LOCK_SECONDS):
                try:
                    work()
                finally:
                    cache.delete(LOCK)
            return True
        except RedisError as error:
            # The lock was what could not be had, so the gate wasn't asked: it was as far away from whoever had to renew.
            manager.note_out_of_reach()
            log.warning("housekeeping.failed", work=work.__name__, error=str(error))
            return False
        except (Error, SlotsUnavailable) as error:
            log.warning("housekeeping.failed", work=work.__name__, error=str(error))
            return False
        except Exception:
            log.exception("housekeeping.broke", work=work.__name__)
            return False
        finally:
            close_old_connections()
