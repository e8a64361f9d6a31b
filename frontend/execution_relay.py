"""One relay a web process for `/ws/executions/{id}/`: it looks at every watched execution at once, and each socket reads on.

Nothing announces an entry of a log, so the watched rows are looked at twice a second by one query, and at once where an event
tells of one's start or end; while nobody watches, nothing is asked. A socket keeps only how far it has come: it reads the
entries behind that, and sockets that are equally far share the read. However slow the client and however long the log, its
memory is one page of entries.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import structlog
from django.db import Error

from core.lifespan import in_background
from core.threads import Threads

from .close_codes import CloseCode
from .execution_reads import Look, Page, looks_at, page_behind, still_readable
from .readers import Reader
from .relay import wanted_or_after

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.5
#: What waits in line has no log, and to say when it starts takes several queries.
LOOKS_PER_QUEUED = 4
RIGHTS_SECONDS = 60
#: One query names at most this many executions: SQLite counts variables.
IDS_PER_QUERY = 500


@dataclass(eq=False, kw_only=True)
class Watcher:
    """One client: which execution it follows, and the last look at it. `news` is set where there is another one."""

    execution_id: uuid.UUID
    agent_id: int
    reader: Reader
    #: Never raises.
    close: Callable[[int], Coroutine[None, None, None]]
    look: Look | None = None
    gone: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)


class ExecutionRelay:
    """All watchers of this process. Its methods are called on the event loop."""

    def __init__(self) -> None:
        self._threads = Threads(size=2, name="executions")
        self._watchers: dict[uuid.UUID, set[Watcher]] = {}
        self._looks: dict[uuid.UUID, Look] = {}
        self._reads: dict[tuple[uuid.UUID, int], asyncio.Future[Page | None]] = {}
        self._hinted: set[uuid.UUID] = set()
        self._look_wanted = asyncio.Event()
        self._rights_wanted = asyncio.Event()
        self._closings: set[asyncio.Task[None]] = set()
        self._pass = 0

    def __len__(self) -> int:
        return sum(len(watchers) for watchers in self._watchers.values())

    # -- What it hears -------------------------------------------------------------------------------------------------
    def join(self, watcher: Watcher) -> None:
        """Look at its execution now, and from then on as it changes."""
        self._watchers.setdefault(watcher.execution_id, set()).add(watcher)
        self._want(watcher.execution_id)

    def leave(self, watcher: Watcher) -> None:
        """Forget it."""
        watchers = self._watchers.get(watcher.execution_id, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(watcher.execution_id, None)
            self._looks.pop(watcher.execution_id, None)
            self._hinted.discard(watcher.execution_id)

    def hint(self, execution_id: str) -> None:
        """Something happened to an execution."""
        if (watched := uuid.UUID(execution_id)) in self._watchers:
            self._want(watched)

    def doubt(self) -> None:
        """Hints may have been lost: look at all."""
        self._hinted |= self._watchers.keys()
        self._look_wanted.set()

    def check_rights(self) -> None:
        """Rights changed: look now."""
        self._rights_wanted.set()

    async def page_behind(self, execution_id: uuid.UUID, after: int) -> Page | None:
        """The next entries of its log: one read for all who ask for the same meanwhile. Raises `django.db.Error`."""
        key = execution_id, after
        reading = self._reads.get(key)
        if reading is None:
            reading = self._reads[key] = asyncio.ensure_future(self._threads.query(page_behind, *key))
            reading.add_done_callback(lambda done: self._forget_read(key, done))
        # One that leaves must not take the read from the others.
        return await asyncio.shield(reading)

    def _forget_read(self, key: tuple[uuid.UUID, int], done: "asyncio.Future[Page | None]") -> None:
        del self._reads[key]
        if not done.cancelled():
            done.exception()  # looked at, also where everybody who asked has left

    # -- What it does --------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Relay for ever."""
        async with in_background(self._look_often, self._check_rights_often):
            await asyncio.Future()

    async def _look_often(self) -> None:
        while True:
            await wanted_or_after(self._look_wanted, LOOK_SECONDS)
            due = self._due()
            for start in range(0, len(due), IDS_PER_QUERY):
                await self._look(due[start : start + IDS_PER_QUERY])

    def _due(self) -> list[uuid.UUID]:
        hinted, self._hinted = self._hinted, set()
        self._pass += 1
        every_one = self._pass % LOOKS_PER_QUEUED == 0
        return [one for one in self._watchers if one in hinted or every_one or not self._in_line(one)]

    def _in_line(self, execution_id: uuid.UUID) -> bool:
        look = self._looks.get(execution_id)
        return look is not None and look.state["status"] == "queued"

    async def _look(self, execution_ids: list[uuid.UUID]) -> None:
        try:
            found = await self._threads.query(looks_at, execution_ids)
        except Error as error:
            log.warning("execution_relay.blind", reason=str(error))
            return
        for one in execution_ids:
            self._show(one, found.get(one))

    def _show(self, execution_id: uuid.UUID, look: Look | None) -> None:
        if execution_id not in self._watchers:
            return
        if look is not None:
            self._looks[execution_id] = look
        for watcher in self._watchers[execution_id]:
            if watcher.look != look or look is None:
                watcher.look, watcher.gone = look or watcher.look, look is None
                watcher.news.set()

    def _want(self, execution_id: uuid.UUID) -> None:
        self._hinted.add(execution_id)
        self._look_wanted.set()

    # -- Rights --------------------------------------------------------------------------------------------------------
    async def _check_rights_often(self) -> None:
        while True:
            await wanted_or_after(self._rights_wanted, RIGHTS_SECONDS)
            if self._watchers:
                await self._check_rights()

    async def _check_rights(self) -> None:
        watchers = [one for watchers in self._watchers.values() for one in watchers]
        try:
            readable = await self._threads.query(still_readable, [(one.reader, one.agent_id) for one in watchers])
        except Error as error:
            log.warning("execution_relay.rights_unknown", reason=str(error))
            return
        for one in watchers:
            may = readable[one.reader, one.agent_id]
            if not may:
                self._close(one, CloseCode.CREDENTIALS if may is None else CloseCode.RIGHTS)

    def _close(self, watcher: Watcher, code: CloseCode) -> None:
        self.leave(watcher)
        closing = asyncio.ensure_future(watcher.close(code))
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)
