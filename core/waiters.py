"""Held calls of this process: who waits for which key, and how they hear that it is finished.

A message announces a key; a query each few seconds covers messages that were lost; a memory of what was announced lately
covers those that came before the wait began.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from django.db import Error

from .threads import Threads

log = logging.getLogger(__name__)
T = TypeVar("T")

REMEMBER_SECONDS = 60
POLL_SECONDS = 5
#: The same for keys that nothing announces.
UNANNOUNCED_SECONDS = 0.5
#: A new wait asks the database once, a moment later: calls that begin together share the query.
FIRST_LOOK_SECONDS = 0.05
#: One query names at most this many keys: SQLite counts variables.
KEYS_PER_QUERY = 500


class Waiters:
    """The futures of held calls by key. Everything but `finished` runs on the event loop."""

    def __init__(
        self, *, threads: Threads, finished: Callable[[set[str]], set[str]], seen: Callable[[set[str]], object] | None = None
    ) -> None:
        """`finished` is a query: which of these keys are finished. `seen` records that callers wait for these attended keys."""
        self._threads = threads
        self._finished = finished
        self._seen = seen
        self._attended: dict[asyncio.Future[bool], str] = {}
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}
        self._recent: OrderedDict[str, float] = OrderedDict()
        self._new: set[str] = set()
        self._first_look: asyncio.Task[None] | None = None
        self._leaving = False
        self._unannounced: set[str] = set()

    def __len__(self) -> int:
        return sum(len(futures) for futures in self._waiting.values())

    def join(self, key: str, *, attended: bool = False, announced: bool = True) -> asyncio.Future[bool]:
        """A future: True once `key` is finished, False when its caller must go. Hand it back to `leave`.

        `attended`: it matters that somebody waits; that is recorded every few seconds until then. A key that nobody will
        announce is asked for more often.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._leaving:
            future.set_result(False)
        elif key in self._recent:
            future.set_result(True)
        else:
            self._waiting.setdefault(key, set()).add(future)
            self._look_soon(key)
            if attended:
                self._attended[future] = key
            if not announced:
                self._unannounced.add(key)
        return future

    def leave(self, key: str, future: asyncio.Future[bool]) -> None:
        """Forget `future`."""
        self._attended.pop(future, None)
        futures = self._waiting.get(key)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del self._waiting[key]
        if key not in self._waiting:
            self._unannounced.discard(key)
        future.cancel()

    def announce(self, key: str) -> None:
        """`key` is finished."""
        now = time.monotonic()
        self._recent[key] = now
        self._recent.move_to_end(key)
        while self._recent and next(iter(self._recent.values())) < now - REMEMBER_SECONDS:
            self._recent.popitem(last=False)
        self._settle(key, True)

    def let_go(self) -> None:
        """End every wait, those to come as well, as if its time had run out: the process is about to end."""
        self._leaving = True
        for key in list(self._waiting):
            self._settle(key, False)

    def doubt(self) -> None:
        """Messages may have been lost: ask for every held key, soon."""
        for key in self._waiting:
            self._look_soon(key)

    async def poll(self) -> None:
        """For ever, every few seconds: say which keys are attended, and ask which of the held ones are finished."""
        async with asyncio.TaskGroup() as polls:
            polls.create_task(self._poll_all())
            polls.create_task(self._poll_unannounced())

    async def _poll_all(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.attend()
            await self.look()

    async def _poll_unannounced(self) -> None:
        while True:
            await asyncio.sleep(UNANNOUNCED_SECONDS)
            await self.look(self._unannounced)

    async def attend(self) -> None:
        """Record that callers wait for their attended keys."""
        keys = list({key for future, key in self._attended.items() if not future.done()})
        if self._seen is None:
            return
        for start in range(0, len(keys), KEYS_PER_QUERY):
            await self._asked(self._seen, set(keys[start : start + KEYS_PER_QUERY]))

    async def look(self, keys: set[str] | None = None) -> None:
        """Ask once, for `keys` or all that are held."""
        wanted = [key for key in (self._waiting if keys is None else keys) if key in self._waiting]
        for start in range(0, len(wanted), KEYS_PER_QUERY):
            finished = await self._asked(self._finished, set(wanted[start : start + KEYS_PER_QUERY]))
            for key in finished or ():
                self._settle(key, True)

    async def _asked(self, query: Callable[[set[str]], T], keys: set[str]) -> T | None:
        """The query's answer; None where the database gave none: it is asked again soon."""
        try:
            return await self._threads.query(query, keys)
        except Error:
            log.warning("waiters.query_failed", exc_info=True)
            return None

    def _look_soon(self, key: str) -> None:
        self._new.add(key)
        if self._first_look is None:
            self._first_look = asyncio.create_task(self._look_at_new())

    async def _look_at_new(self) -> None:
        await asyncio.sleep(FIRST_LOOK_SECONDS)
        self._first_look, keys, self._new = None, self._new, set()
        await self.look(keys)

    def _settle(self, key: str, finished: bool) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(finished)
