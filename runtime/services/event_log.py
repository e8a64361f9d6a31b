"""A run's event log: kept in memory for a moment, stored in batches."""

import threading
import uuid
from typing import Any

from django.db import IntegrityError
from django.db.models import Max

from backlog.models import ExecutionEvent

#: A run that talks without end must not fill the database: the last of so many events says that there were more.
MAX_EVENTS = 10_000
#: Most events that one flush stores. The keeper's thread flushes each run in turn and has leases to renew.
BATCH = 500
#: The type of what repair adds to a log.
REPAIR = "repair"
#: Tries to find the log's end while repair writes to it as well.
ATTEMPTS = 5


class EventLog:
    """Numbers one run's events and stores them at `flush`: from 1, or behind what repair has added to the execution's log."""

    def __init__(self, execution_id: uuid.UUID) -> None:
        self._execution_id = execution_id
        self._pending: list[ExecutionEvent] = []
        self._seq = 0
        self._behind = 0
        self._adding = threading.Lock()
        self._storing = threading.Lock()

    def emit(self, kind: str, data: dict[str, Any]) -> bool:
        """Take one event; whether another one will be taken. The last one says that it is."""
        with self._adding:
            if self._seq < MAX_EVENTS:
                self._seq += 1
                if self._seq == MAX_EVENTS:
                    kind, data = "truncated", {"text": f"Only the first {MAX_EVENTS - 1} events are kept"}
                self._pending.append(self._numbered(kind, data))
            return self._seq < MAX_EVENTS

    def _numbered(self, kind: str, data: dict[str, Any]) -> ExecutionEvent:
        return ExecutionEvent(execution_id=self._execution_id, seq=self._behind + self._seq, type=kind[:32], data=data)

    def flush(self) -> bool:
        """Store the oldest `BATCH` of those not yet stored; whether more are left. A database error leaves them for the next one."""
        with self._storing:
            with self._adding:
                batch = self._pending[:BATCH]
            if batch:
                self._store(batch)
            with self._adding:
                del self._pending[: len(batch)]
                return bool(self._pending)

    def _store(self, batch: list[ExecutionEvent]) -> None:
        """Store what of it isn't stored yet. A number that repair has taken meanwhile moves the rest behind it."""
        for left in reversed(range(ATTEMPTS)):
            try:
                ExecutionEvent.objects.bulk_create(batch)
            except IntegrityError:
                if not left:
                    raise
                # By a try whose answer got lost: nobody else but repair writes here.
                known = self._known(batch)
                batch = [event for event in batch if event.seq not in known]
                if batch and not known:
                    self._move_behind(batch[0].seq)
            else:
                return

    def _known(self, batch: list[ExecutionEvent]) -> set[int]:
        """The numbers of the batch under which the run itself has stored events."""
        stored = ExecutionEvent.objects.filter(execution_id=self._execution_id, seq__in=[event.seq for event in batch])
        return set(stored.exclude(type=REPAIR).values_list("seq", flat=True))

    def _move_behind(self, first: int) -> None:
        """Number `first` and all after it anew, behind the end of the log."""
        last = ExecutionEvent.objects.filter(execution_id=self._execution_id).aggregate(last=Max("seq"))["last"] or 0
        with self._adding:
            by = last + 1 - first
            self._behind += by
            for event in self._pending:
                event.seq += by if event.seq >= first else 0
