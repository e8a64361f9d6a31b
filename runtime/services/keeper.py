"""The keeper: two threads a worker process that hold on to the leases of all its runs.

One looks at the rows each second, by one query: which runs were cancelled or fenced. The other renews every lease at each
renewal interval, by one pipeline. They are two so that neither waits for the other's store: while Redis hangs the rows carry
the runs, while the database hangs the leases do. What they learn they tell each run through its `Stop`: a reason to end, or
a later deadline.
"""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from django.db import Error, close_old_connections

from backlog import selectors as rows
from backlog.models import Status
from capacity.errors import SlotsUnavailable
from capacity.leases import Lease, RenewOutcome
from capacity.manager import CapacityManager
from core.conf import conf
from core.db import hand_back
from core.pauses import pause

from ..runtimes.base import Stop, StopReason

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
#: A run's work ends this long before its lease does, so that it is over when the slot may be given away.
LONGEST_MARGIN_SECONDS = 5.0


def margin_seconds() -> float:
    """The time between the end of a run's work and the end of a lease that was not renewed."""
    return min(LONGEST_MARGIN_SECONDS, conf.lease_seconds / 6)


@dataclass
class Watched:
    """A lease the keeper holds on to. `flush` stores what the run emitted; it is called from the thread that looks at the rows."""

    lease: Lease
    stop: Stop
    flush: Callable[[], object]
    renewed_at: float


class Keeper:
    """Renews the leases of this process's runs and listens for their cancels."""

    def __init__(self) -> None:
        self._watched: dict[uuid.UUID, Watched] = {}
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._manager = CapacityManager()
        self._ending: StopReason | None = None
        self._renew_at = 0.0

    def watch(self, *, lease: Lease, stop: Stop, flush: Callable[[], object], renewed_at: float) -> None:
        """Hold on to a started lease from now on; `renewed_at` is the monotonic time before its last renewal was sent."""
        stop.extend(renewed_at + conf.lease_seconds - margin_seconds())
        with self._lock:
            self._watched[lease.token] = Watched(lease=lease, stop=stop, flush=flush, renewed_at=renewed_at)
            self._ensure_thread("keeper", self._look_at_rows)
            self._ensure_thread("renewer", self._renew_leases)
            ending = self._ending
        if ending is not None:
            stop(ending)

    def unwatch(self, lease: Lease) -> None:
        """Let go: the slot was given back."""
        with self._lock:
            self._watched.pop(lease.token, None)

    def runs(self) -> list[Watched]:
        """What this process carries now."""
        with self._lock:
            return list(self._watched.values())

    def stop_all(self, reason: StopReason) -> None:
        """Tell every run to end, those that are yet to be watched as well."""
        with self._lock:
            self._ending = reason
        for watched in self.runs():
            watched.stop(reason)

    def _ensure_thread(self, name: str, step: Callable[[list[Watched]], None]) -> None:
        thread = self._threads.get(name)
        if thread is None or not thread.is_alive():
            thread = self._threads[name] = threading.Thread(target=self._keep, args=[step], name=name, daemon=True)
            thread.start()

    def _keep(self, step: Callable[[list[Watched]], None]) -> None:
        while True:
            began = time.monotonic()
            try:
                if watched := self.runs():
                    step(watched)
                    # Both threads ask it: the other one may be held up by its store.
                    for one in watched:
                        _end_past_deadline(one)
                hand_back()
            except Exception:
                # Every lease of this process hangs on these threads: whatever goes wrong, the next pass must come.
                log.exception("keeper.broke")
            # A row carries its run for a margin: it must be asked more often than that.
            pause(max(0.05, min(TICK_SECONDS, margin_seconds() / 2) - (time.monotonic() - began)))

    def _look_at_rows(self, watched: list[Watched]) -> None:
        self._look(watched)
        _flush(watched)

    def _renew_leases(self, watched: list[Watched]) -> None:
        began = time.monotonic()
        if began >= self._renew_at:
            self._renew_at = began + conf.lease_renew_seconds if self._renew(watched) else began

    def _look(self, watched: list[Watched]) -> None:
        """Ask by one query which rows are still this process's runs, and of which the cancel was asked; tell the runs.

        A row that is still the run's carries it for a margin more, whatever the gate says or while it says nothing: repair
        fences the row first, and frees the slot a margin and a half later. So it is not the renewal that has to be in time: that may
        hang for longer than a margin has left.
        """
        looked_at = time.monotonic()
        try:
            seen = rows.watched([one.lease.execution_id for one in watched])
        except Error as error:
            close_old_connections()
            log.warning("keeper.database_unreachable", error=str(error))
            return
        for one in watched:
            token, cancel_at, status = seen.get(one.lease.execution_id, (None, None, ""))
            # A result that waits to be written clears the token; the run has ended then and minds no stop.
            if token != one.lease.token or status != Status.RUNNING:
                one.stop(StopReason.LEASE_LOST)
                continue
            if cancel_at is not None:
                one.stop(StopReason.CANCELLED)
            if one.stop.deadline < looked_at + margin_seconds():
                one.stop.extend(looked_at + margin_seconds())

    def _renew(self, watched: list[Watched]) -> bool:
        """Whether the gate answered for all."""
        sent = time.monotonic()
        try:
            outcomes = self._manager.renew([one.lease for one in watched])
        except SlotsUnavailable:
            return False
        for one, outcome in zip(watched, outcomes, strict=True):
            if outcome == RenewOutcome.OK:
                one.renewed_at = sent
                one.stop.extend(sent + conf.lease_seconds - margin_seconds())
            elif outcome == RenewOutcome.REFUSED and self._still_watched(one):
                one.stop(StopReason.LEASE_LOST)
        if RenewOutcome.REBUILDING in outcomes:
            self._rebuild()
            return False
        return True

    def _rebuild(self) -> None:
        """The sweep drains the lines afterwards."""
        try:
            self._manager.refill()
        except (SlotsUnavailable, Error) as error:
            log.warning("keeper.rebuild_failed", error=str(error))

    def _still_watched(self, one: Watched) -> bool:
        with self._lock:
            return one.lease.token in self._watched


def _flush(watched: list[Watched]) -> None:
    """Store what the runs emitted; after a failure the rest waits for the next pass, which must not wait for each of them."""
    for one in watched:
        try:
            one.flush()
        except Error as error:
            close_old_connections()
            log.warning("keeper.events_not_stored", execution_id=str(one.lease.execution_id), error=str(error))
            return


def _end_past_deadline(one: Watched) -> None:
    """When neither the gate nor the row has answered for a lease, the work stops."""
    if not one.stop.lease_holds():
        one.stop(StopReason.LEASE_LOST)


keeper = Keeper()
