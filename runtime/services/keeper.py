"""The keeper: one thread a worker process that holds on to the leases of all its runs.

Each second one query tells which runs were cancelled or fenced; at each renewal interval one pipeline renews every lease.
What it learns it tells each run through its `Stop`: a reason to end, or a later deadline.
"""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from django.db import DatabaseError, close_old_connections

from backlog import selectors as rows
from backlog.models import Status
from capacity.errors import SlotsUnavailable
from capacity.leases import Lease, RenewOutcome
from capacity.manager import CapacityManager
from core.conf import conf

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
    """A lease the keeper holds on to. `flush` stores what the run emitted; it is called from the keeper's thread."""

    lease: Lease
    stop: Stop
    flush: Callable[[], None]
    renewed_at: float


class Keeper:
    """Renews the leases of this process's runs and listens for their cancels."""

    def __init__(self) -> None:
        self._watched: dict[uuid.UUID, Watched] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._manager = CapacityManager()

    def watch(self, *, lease: Lease, stop: Stop, flush: Callable[[], None], renewed_at: float) -> None:
        """Hold on to a started lease from now on; `renewed_at` is the monotonic time before its last renewal was sent."""
        stop.extend(renewed_at + conf.lease_seconds - margin_seconds())
        with self._lock:
            self._watched[lease.token] = Watched(lease=lease, stop=stop, flush=flush, renewed_at=renewed_at)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)
                self._thread.start()

    def unwatch(self, lease: Lease) -> None:
        """Let go: the slot was given back."""
        with self._lock:
            self._watched.pop(lease.token, None)

    def runs(self) -> list[Watched]:
        """What this process carries now."""
        with self._lock:
            return list(self._watched.values())

    def stop_all(self, reason: StopReason) -> None:
        """Tell every run to end."""
        for watched in self.runs():
            watched.stop(reason)

    def _keep(self) -> None:
        renew_at = 0.0
        while True:
            began = time.monotonic()
            watched = self.runs()
            if watched:
                known = self._look(watched)
                if began >= renew_at:
                    renewed = self._renew(watched, known=known, looked_at=began)
                    renew_at = began + conf.lease_renew_seconds if renewed else began
                for one in watched:
                    _flush(one)
                    _end_past_deadline(one)
            time.sleep(max(0.05, TICK_SECONDS - (time.monotonic() - began)))

    def _look(self, watched: list[Watched]) -> dict[uuid.UUID, tuple[bool, bool]] | None:
        """`{id: (still ours, cancel asked)}` by one query, told to the runs; None when the database can't be asked."""
        try:
            seen = rows.watched([one.lease.execution_id for one in watched])
        except DatabaseError as error:
            close_old_connections()
            log.warning("keeper.database_unreachable", error=str(error))
            return None
        known: dict[uuid.UUID, tuple[bool, bool]] = {}
        for one in watched:
            token, cancel_at, status = seen.get(one.lease.execution_id, (None, None, ""))
            # A result that waits to be written clears the token; the run has ended then and minds no stop.
            mine = token == one.lease.token and status == Status.RUNNING
            known[one.lease.token] = (mine, cancel_at is not None)
            if not mine:
                one.stop(StopReason.LEASE_LOST)
            elif cancel_at is not None:
                one.stop(StopReason.CANCELLED)
        return known

    def _renew(self, watched: list[Watched], *, known: dict[uuid.UUID, tuple[bool, bool]] | None, looked_at: float) -> bool:
        """Whether the gate answered. When it can't, a row that is still this run's carries it for a margin more."""
        sent = time.monotonic()
        try:
            outcomes = self._manager.renew([one.lease for one in watched])
        except SlotsUnavailable:
            for one in watched:
                if known is not None and known[one.lease.token][0]:
                    one.stop.extend(max(one.stop.deadline, looked_at + margin_seconds()))
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
        except (SlotsUnavailable, DatabaseError) as error:
            log.warning("keeper.rebuild_failed", error=str(error))

    def _still_watched(self, one: Watched) -> bool:
        with self._lock:
            return one.lease.token in self._watched


def _flush(one: Watched) -> None:
    try:
        one.flush()
    except DatabaseError as error:
        log.warning("keeper.events_not_stored", execution_id=str(one.lease.execution_id), error=str(error))


def _end_past_deadline(one: Watched) -> None:
    """When neither the gate nor the row has answered for a lease, the work stops."""
    if not one.stop.lease_holds():
        one.stop(StopReason.LEASE_LOST)


keeper = Keeper()
