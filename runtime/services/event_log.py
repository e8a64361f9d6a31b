"""A run's event log: kept in memory for a moment, stored in batches."""

import threading
import uuid
from typing import Any

from backlog.models import ExecutionEvent

#: A run that talks without end must not fill the database: the last of so many events says that there were more.
MAX_EVENTS = 10_000
#: Most events that one flush stores. The keeper's thread flushes each run in turn and has leases to renew.
BATCH = 500


class EventLog:
    """Numbers one run's events from 1 and stores them at `flush`."""

    def __init__(self, execution_id: uuid.UUID) -> None:
        self._execution_id = execution_id
        self._pending: list[ExecutionEvent] = []
        self._seq = 0
        self._adding = threading.Lock()
        self._storing = threading.Lock()

    def emit(self, kind: str, data: dict[str, Any]) -> bool:
        """Take one event; whether another one will be taken. The last one says that it is."""
        with self._adding:
            if self._seq < MAX_EVENTS:
                self._seq += 1
                if self._seq == MAX_EVENTS:
                    kind, data = "truncated", {"text": f"Only the first {MAX_EVENTS - 1} events are kept"}
                self._pending.append(ExecutionEvent(execution_id=self._execution_id, seq=self._seq, type=kind[:32], data=data))
            return self._seq < MAX_EVENTS

    def flush(self) -> bool:
        """Store the oldest `BATCH` of those not yet stored; whether more are left. A database error leaves them for the next one."""
        with self._storing:
            with self._adding:
                batch = self._pending[:BATCH]
            if batch:
                # What was stored although its answer got lost is there already.
                ExecutionEvent.objects.bulk_create(batch, ignore_conflicts=True)
            with self._adding:
                del self._pending[: len(batch)]
                return bool(self._pending)
