"""From the event loop to a run's own thread: what arrives is parsed where it holds up nobody else."""

import asyncio
import queue
from collections.abc import Iterator

#: Parts that wait for the thread; the next one waits at the agent.
AHEAD = 8


class Handoff:
    """Passes an answer's parts on, a bounded number ahead of whoever takes them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._room = asyncio.Semaphore(AHEAD)
        self._parts: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    async def put(self, part: bytes) -> None:
        """Pass `part` on, as soon as there is room; in the loop."""
        await self._room.acquire()
        self._parts.put(part)

    def end(self) -> None:
        """No more comes; in the loop."""
        self._parts.put(None)

    def __iter__(self) -> Iterator[bytes]:
        """The parts until the end; in the thread."""
        while (part := self._parts.get()) is not None:
            yield part
            self._loop.call_soon_threadsafe(self._room.release)
