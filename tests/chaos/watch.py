"""Who looks on: when each slot was given back, by the rows; and whether any startable row stood beside a free slot."""

import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import redis

from tests import seen
from tests.invariants import Violation
from tests.stack import Stack

LOOK_SECONDS = 0.2
_HOLDING = "SELECT id FROM backlog_execution WHERE slot_token IS NOT NULL"
_GRANTED = "SELECT slot_token FROM backlog_execution WHERE status = 'running' AND started_at IS NULL"
AWAY = (psycopg.Error, sqlite3.Error, redis.RedisError)


def as_id(value: Any) -> str:
    """An id or token as text; SQLite keeps them as bare hexadecimal digits."""
    return str(uuid.UUID(str(value)))


def seconds_of(value: Any) -> float:
    """A time of either database, as seconds since 1970."""
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
    return float(value.timestamp())


class SlotWatch(threading.Thread):
    """Notes for each execution until when its row was seen to hold a slot."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(name="slot watch", daemon=True)
        self._stack = stack
        self._over = threading.Event()
        self.held_until: dict[str, float] = {}

    def run(self) -> None:
        """Until told to end."""
        while not self._over.wait(LOOK_SECONDS):
            try:
                holding = [as_id(row["id"]) for row in self._stack.sql(_HOLDING)]
            except AWAY:
                continue
            now = time.time()
            self.held_until |= dict.fromkeys(holding, now)

    def end(self) -> None:
        """Stop looking."""
        self._over.set()
        self.join()


class DrainWatch(threading.Thread):
    """How long it takes from now until every row that has a slot and waits for a worker has begun, or gone."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(name="drain watch", daemon=True)
        self._stack = stack
        self.rows = 0
        self.seconds: float | None = None
        self.start()

    def run(self) -> None:
        """Until it is known, or the database went away as well."""
        began = time.monotonic()
        try:
            waited_for = self._granted()
            self.rows = len(waited_for)
            while waited_for & self._granted():
                time.sleep(0.05)
        except AWAY:
            return
        self.seconds = time.monotonic() - began

    def _granted(self) -> set[Any]:
        return {row["slot_token"] for row in self._stack.sql(_GRANTED)}


def wait_while_nobody_idles(over: Callable[[], Any], *, stack: Stack, names: Sequence[str], seconds: float, most_idle: float = 5.0) -> None:
    """Wait for `over`; a `Violation` when a startable row stands beside a free slot for longer than `most_idle`."""
    deadline, idle_since = time.monotonic() + seconds, dict.fromkeys(names, 0.0)
    while not over():
        assert time.monotonic() < deadline, f"not at rest within {seconds} s"
        now, idle = time.monotonic(), _idle(stack, names)
        idle_since = {name: (idle_since[name] or now) if name in idle else 0.0 for name in names}
        if too_long := {name: round(now - since, 1) for name, since in idle_since.items() if since and now - since > most_idle}:
            raise Violation(f"IDLE for so many seconds: {too_long}; {idle}")
        time.sleep(LOOK_SECONDS)


def _idle(stack: Stack, names: Sequence[str]) -> dict[str, str]:
    """The agents with a startable row and a free slot, and what they look like."""
    rows, holders = seen.rows_of(stack.sql, names), seen.holders_of(stack.redis)
    found = {}
    for agent in seen.agents_of(stack.sql):
        held = sum(holder.agent == agent.name for holder in holders)
        waiting = [row.id for row in rows if row.agent == agent.name and row.in_line]
        if agent.name in names and waiting and not agent.paused and held < agent.limit:
            found[agent.name] = f"{held} of {agent.limit} in use, {len(waiting)} startable: {waiting[:3]}"
    return found
