"""A run's event log: kept in memory for a moment, stored in batches."""

import threading
import uuid
from typing import Any

from backlog.models import ExecutionEvent

#: A run that talks without end must not fill the database.
MOST_EVENTS = 10_000


class EventLog:
    """Numbers one run's events from 1 and stores them at `flush`."""

    def __init__(self, execution_id: uuid.UUID) -> None:
        self._execution_id = execution_id
        self._pending: list[ExecutionEvent] = []
        self._seq = 0
        self._adding = threading.Lock()
        self._storing = threading.Lock()

    def emit(self, kind: str, data: dict[str, Any]) -> None:
        """Take one event; those beyond `MOST_EVENTS` are dropped after one that says so."""
        with self._adding:
            if self._seq > MOST_EVENTS:
                return
            self._seq += 1
            if self._seq > MOST_EVENTS:
                kind, data = "truncated", {"after": MOST_EVENTS}
            self._pending.append(ExecutionEvent(execution_id=self._execution_id, seq=self._seq, type=kind[:32], data=data))

    def flush(self) -> None:
        """Store what was taken since the last flush; a database error leaves it for the next one."""
        with self._storing:
            with self._adding:
                batch = list(self._pending)
            if batch:
                ExecutionEvent.objects.bulk_create(batch, batch_size=500)
                with self._adding:
                    del self._pending[: len(batch)]
