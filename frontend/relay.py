"""One relay a web process: hears that meters changed, reads them once for all, tells each socket what its reader may see.

Hints say which agents changed; the first is answered at once, those that follow are gathered. Frames are encoded once for
all readers who see the same agents, and go straight to the sockets. What a hint should have said and didn't is found
every few seconds by comparing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field

import structlog
from django.db import Error

from core.lifespan import in_background
from core.threads import Threads

from . import frames, meters
from .close_codes import CloseCode
from .frames import Value, Values
from .outbox import Outbox
from .readers import Names, Reader, still_reading

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 0.1
COMPARE_SECONDS = 5
#: Compared at most this often, however often it is wanted.
COMPARE_PAUSE_SECONDS = 0.5
HEARTBEAT_SECONDS = 10
RIGHTS_SECONDS = 60
NOTHING_KNOWN: Value = {"max": None, "active": None, "queued": None, "paused": False, "version": 0}
#: A flush waits at most this long for its sends before it counts as done.
SENDS_SECONDS = 0.1


@dataclass(eq=False, kw_only=True)
class Socket:
    """One client: who reads, what they may see, and the way out. `only` narrows it to the agents the client named."""

    reader: Reader
    visible: Names
    only: Names | None
    outbox: Outbox
    #: Never raises.
    close: Callable[[int], Coroutine[None, None, None]]
    #: Whether it has had its snapshot: one that joins while a flush reads isn't told that flush's changes first.
    told: bool = False

    def snapshot(self, values: dict[str, Value], frame: str) -> None:
        """Tell it everything."""
        self.told = True
        self.outbox.snapshot(values, frame)

    def delta(self, values: Values, frame: str) -> None:
        """Tell it what changed, if it was told what there is."""
        if self.told:
            self.outbox.delta(values, frame)

    def narrowed(self, names: Names) -> Names:
        """Of `names`, what this client wants to see."""
        return names if self.only is None else names & self.only


@dataclass
class _Frames:
    """This flush's frames by set of visible agents."""

    encoded: dict[tuple[bool, Names], tuple[dict[str, Value], str]] = field(default_factory=dict)

    def of(self, *, whole: bool, visible: Names, values: Mapping[str, Value]) -> tuple[dict[str, Value], str]:
        """The part of `values` that is visible, and its frame."""
        if (whole, visible) not in self.encoded:
            part = {name: value for name, value in values.items() if name in visible}
            self.encoded[whole, visible] = part, (frames.snapshot if whole else frames.delta)(part)
        return self.encoded[whole, visible]


class Relay:
    """All sockets of this process. Its methods are called on the event loop."""

    def __init__(self) -> None:
        self._threads = Threads(size=1, name="relay")
        self._sockets: set[Socket] = set()
        self._sets: dict[Names, Names] = {}
        #: What clients were told last.
        self._shown: dict[str, Value] = {}
        self._living: Names = frozenset()
        self._blind = False
        #: Agents to be read again, sockets to be sent a snapshot.
        self._changed: set[str] = set()
        self._due: set[Socket] = set()
        self._flush_wanted = asyncio.Event()
        self._rights_wanted = asyncio.Event()
        self._compare_wanted = asyncio.Event()
        self._closings: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sockets)

    # -- What it hears -------------------------------------------------------------------------------------------------
    def join(self, socket: Socket) -> None:
        """Send this socket a snapshot, and from then on what changes."""
        socket.visible = self._shared(socket.visible)
        self._sockets.add(socket)
        self.resync(socket)

    def leave(self, socket: Socket) -> None:
        """Forget it."""
        self._sockets.discard(socket)
        self._due.discard(socket)
        socket.outbox.stop()
        if not self._sockets:
            # Nobody is told of changes now: what is remembered would go stale.
            self._shown.clear()
            self._changed.clear()

    def resync(self, socket: Socket) -> None:
        """Send this socket a snapshot, soon."""
        self._due.add(socket)
        self._flush_wanted.set()

    def hint(self, data: bytes) -> None:
        """An agent changed: `name version`."""
        name, _, version = data.decode("utf-8", "replace").partition(" ")
        shown = self._shown.get(name)
        if not self._sockets or (shown and version.isdigit() and int(version) <= shown["version"]):
            return
        self._changed.add(name)
        self._flush_wanted.set()

    def doubt(self) -> None:
        """Hints may have been lost: compare now."""
        self._compare_wanted.set()

    def check_rights(self) -> None:
        """Rights changed: look now."""
        self._rights_wanted.set()

    # -- What it does --------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Relay for ever."""
        async with in_background(self._flush_when_wanted, self._compare_often, self._beat, self._check_rights_often):
            await asyncio.Future()

    async def _flush_when_wanted(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted.clear()
            started = clock()
            await self._flush()
            await asyncio.sleep(max(FLUSH_SECONDS, 2 * (clock() - started)))

    async def _compare_often(self) -> None:
        while True:
            await wanted_or_after(self._compare_wanted, COMPARE_SECONDS)
            if self._sockets:
                await self._compare()
                await asyncio.sleep(COMPARE_PAUSE_SECONDS)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            for socket in self._sockets:
                if socket.told:
                    socket.outbox.heartbeat()

    async def _check_rights_often(self) -> None:
        while True:
            await wanted_or_after(self._rights_wanted, RIGHTS_SECONDS)
            if self._sockets:
                await self._check_rights()

    # -- Flush ---------------------------------------------------------------------------------------------------------
    async def _flush(self) -> None:
        changed, due = self._changed, self._due
        self._changed, self._due = set(), set()
        seen = _union(self._sockets)
        if changed - self._living:
            # A new agent, or one that is gone: who may see it is to be asked first.
            self._compare_wanted.set()
        try:
            news = await self._read(seen if self._blind else (changed & seen) | (_union(due) - self._shown.keys()))
        except meters.UNREADABLE as error:
            await self._go_blind(due, error)
            return
        if self._blind:
            log.info("relay.sees_again")
            self._blind, due = False, set(self._sockets)
        self._tell(news, due)
        await self._let_sends_go()

    async def _read(self, names: set[str]) -> dict[str, Value]:
        """Those of the agents whose values are not as they were told last; from now on they are."""
        read = await self._threads.query(meters.values_of, names) if names else {}
        # A value that is newer than its version is told when its step has come: clients drop a version they have.
        news = {n: value for n, value in read.items() if n not in self._shown or value["version"] > self._shown[n]["version"]}
        self._shown |= news
        return news

    def _tell(self, news: dict[str, Value], due: set[Socket]) -> None:
        encoded = _Frames()
        for socket in self._sockets:
            if socket in due:
                socket.snapshot(*encoded.of(whole=True, visible=socket.visible, values=self._shown))
            elif not socket.visible.isdisjoint(news):
                socket.delta(*encoded.of(whole=False, visible=socket.visible, values=news))

    async def _let_sends_go(self) -> None:
        sends = [socket.outbox.sending for socket in self._sockets if socket.outbox.sending]
        if sends:
            await asyncio.wait(sends, timeout=SENDS_SECONDS)

    async def _go_blind(self, due: set[Socket], error: Exception) -> None:
        """Nothing can be read: say so with a snapshot, to all when it begins and to each who joins then."""
        if not self._blind:
            log.warning("relay.blind", reason=str(error))
            self._blind, due = True, set(self._sockets)
        unknown = await self._unknown(_union(due))
        self._shown.clear()
        encoded = _Frames()
        for socket in due & self._sockets:
            socket.snapshot(*encoded.of(whole=True, visible=socket.visible, values=unknown))

    async def _unknown(self, names: set[str]) -> dict[str, Value]:
        try:
            return await self._threads.query(meters.unknown_values_of, names)
        except Error:
            return {name: self._shown.get(name, NOTHING_KNOWN) | {"active": None} for name in names}

    # -- Compare and rights --------------------------------------------------------------------------------------------
    async def _compare(self) -> None:
        """Have read again what differs from what was told; where agents came or went, ask for rights."""
        if self._blind:
            self._flush_wanted.set()
            return
        try:
            found = await self._threads.query(meters.compare, dict(self._shown))
        except meters.UNREADABLE as error:
            await self._go_blind(set(), error)
            return
        self._changed |= found.differing
        if found.differing:
            self._flush_wanted.set()
        if found.living != self._living:
            for name in self._shown.keys() - found.living:
                del self._shown[name]
            self._living = found.living
            self._rights_wanted.set()

    async def _check_rights(self) -> None:
        """Ask once for all readers what they may see, and tell each what is new and what is gone."""
        readers = {socket.reader for socket in self._sockets}
        try:
            names = await self._threads.query(still_reading, readers)
        except Error as error:
            log.warning("relay.rights_unknown", reason=str(error))
            return
        self._sets = {}
        for socket in list(self._sockets):
            if socket.reader in names:
                self._apply_rights(socket, names[socket.reader])

    def _apply_rights(self, socket: Socket, names: Names | None) -> None:
        if names is None:
            self._close(socket, CloseCode.CREDENTIALS)
            return
        former, socket.visible = socket.visible, self._shared(socket.narrowed(names))
        gone = dict.fromkeys(sorted(former - socket.visible))
        if gone:
            socket.delta(gone, frames.delta(gone))
        if socket.visible - former:
            self.resync(socket)

    def _close(self, socket: Socket, code: CloseCode) -> None:
        self.leave(socket)
        closing = asyncio.ensure_future(socket.close(code))
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    def _shared(self, names: Names) -> Names:
        """The one set of these names: readers who see the same share it, and what is kept by it is found at once."""
        return self._sets.setdefault(names, names)


def _union(sockets: set[Socket]) -> set[str]:
    return set().union(*{socket.visible for socket in sockets})


async def wanted_or_after(wanted: asyncio.Event, seconds: float) -> None:
    """Return once it is wanted, which is taken note of, or after `seconds`."""
    try:
        await asyncio.wait_for(wanted.wait(), seconds)
    except TimeoutError:
        return
    wanted.clear()
