"""A network that misbehaves on demand: a TCP proxy in front of one server, run by a thread of the test.

It passes everything on until it is told to `stop` (refuse and cut), `hang` (accept and say nothing), or be `slow`; `resume`
makes it pass again. What was sent into a hang arrives after it, late, as from a server that was frozen.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES = 65_536
COMMAND_SECONDS = 10


class Proxy:
    """Listens on a port of its own, the same for as long as it lives, in front of `target` on this host."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._delay = 0.0
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._links: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self._do(self._listen(listener))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def through(self, url: str) -> str:
        """The URL of the server with this proxy's address in it."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    # -- What it does to the traffic ---------------------------------------------------------------------------------
    def resume(self) -> None:
        """Pass everything on again, what a hang held back first."""
        self._do(self._resume())

    def stop(self) -> None:
        """Cut every connection and refuse new ones: the server is gone."""
        self._do(self._stop())

    def hang(self) -> None:
        """Accept connections and bytes, and let none through: the server is frozen, or the network a black hole."""
        self._do(self._hang())

    def slow(self, milliseconds: float) -> None:
        """Hold back each piece, in both directions, for so long."""
        self._do(self._resume(milliseconds / 1000))

    def cut(self) -> None:
        """Cut the open connections once; whoever connects again gets through."""
        self._do(self._cut())

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._links)

    def close(self) -> None:
        """End it."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(COMMAND_SECONDS)
        self._loop.close()

    # -- On its own loop ---------------------------------------------------------------------------------------------
    def _do(self, command: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(command, self._loop).result(COMMAND_SECONDS)

    async def _listen(self, listener: socket.socket | None = None) -> None:
        if self._server is None:
            listener = listener or socket.create_server(("127.0.0.1", self.port), backlog=512)
            self._server = await asyncio.start_server(self._linked, sock=listener)

    async def _resume(self, delay: float = 0.0) -> None:
        self._delay = delay
        self._open.set()
        await self._listen()

    async def _hang(self) -> None:
        self._open.clear()
        await self._listen()

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._open.set()
        await self._cut()

    async def _end(self) -> None:
        await self._stop()
        # A connection that was accepted just now begins, and one that was aborted ends, in the loop's next rounds.
        for _ in range(5):
            await asyncio.sleep(0)
            await self._cut()

    async def _cut(self) -> None:
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _linked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = self._loop.create_task(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        # One that is cut before it has begun never comes to its own end.
        link.add_done_callback(lambda _: writer.transport.abort())

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_writer: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            ways = [asyncio.ensure_future(self._pump(reader, far_writer)), asyncio.ensure_future(self._pump(far_reader, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the server is gone: so is the client's connection
        finally:
            for one in (writer, far_writer):
                if one is not None:
                    one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(CHUNK_BYTES):
            await self._open.wait()
            if self._delay:
                await asyncio.sleep(self._delay)
            writer.write(piece)
            await writer.drain()
