"""Many pages on one connection's worth of processor: websocket clients that only take in meters, and what they were told."""

import asyncio
import base64
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .web import HOST

#: Pages come this many at once.
AT_ONCE = 32
#: One frame goes to many pages: it is read once. This many different ones are remembered.
REMEMBERED = 256
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
Told = dict[str, tuple[int, int | None]]
_read: dict[bytes, tuple[bool, Told]] = {}


@dataclass(eq=False)
class Page(asyncio.Protocol):
    """One websocket: its meters as `{agent: (version, active)}`, and how many frames came in each window of its life."""

    handshake: bytes
    window_seconds: float
    #: Told of each change of one agent's.
    seen: Callable[[str, int | None], None] | None = None
    meters: Told = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)
    closed_with: int | None = None
    open: asyncio.Event = field(default_factory=asyncio.Event)
    _buffer: bytearray = field(default_factory=bytearray)
    _shaken: bool = False

    def connection_made(self, transport: Any) -> None:
        """Ask for a websocket."""
        self.transport = transport
        transport.write(self.handshake)

    def connection_lost(self, _error: Exception | None) -> None:
        """The end, expected or not."""
        self.closed_with = self.closed_with or 1006
        self.open.set()

    def data_received(self, data: bytes) -> None:
        """Take in whole frames."""
        self._buffer += data
        if not self._shaken:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                raise RuntimeError(f"no websocket: {bytes(head)!r}")
            self._shaken, self._buffer = True, rest
        for opcode, payload in self._frames():
            self._take(opcode, payload)

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """Those that are there in full: a server's have no mask, and ours send none in parts."""
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 2:
            size, start = buffer[at + 1], at + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                size, start = int.from_bytes(buffer[start : start + width]), start + width
            if len(buffer) < start + size:
                break
            yield buffer[at] & 15, bytes(buffer[start : start + size])
            at = start + size
        del buffer[:at]

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == _TEXT:
            self._hear(payload)
        elif opcode == _PING:
            mask = secrets.token_bytes(4)
            masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
            self.transport.write(bytes([128 | _PONG, 128 | len(payload)]) + mask + masked)
        elif opcode == _CLOSE:
            self.closed_with = int.from_bytes(payload[:2])

    def _hear(self, payload: bytes) -> None:
        window = int(time.monotonic() / self.window_seconds)
        self.windows[window] = self.windows.get(window, 0) + 1
        whole, told = _meters_in(payload)
        if self.seen:
            for name, (_, active) in told.items():
                self.seen(name, active)
        if whole:
            self.meters = dict(told)
            self.open.set()
            return
        for name, value in told.items():
            if value[0] > self.meters.get(name, (-1, None))[0]:
                self.meters[name] = value


def _meters_in(payload: bytes) -> tuple[bool, Told]:
    known = _read.get(payload)
    if known is None:
        frame = json.loads(payload)
        told = {name: (value["version"], value["active"]) for name, value in frame.get("agents", {}).items()}
        known = frame["type"] == "snapshot", told
        if len(_read) >= REMEMBERED:
            _read.clear()
        _read[payload] = known
    return known


async def opened(port: int, count: int, *, ticket: Callable[[], str], window_seconds: float) -> list[Page]:
    """That many pages, each of which has its snapshot."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> Page:
        async with gate:
            page = Page(_handshake(ticket(), port), window_seconds)
            await asyncio.get_running_loop().create_connection(lambda: page, HOST, port)
            await asyncio.wait_for(page.open.wait(), 60)
            return page

    pages = await asyncio.gather(*(one() for _ in range(count)))
    if closed := [page.closed_with for page in pages if page.closed_with]:
        raise RuntimeError(f"{len(closed)} pages were closed: {closed[0]}")
    return list(pages)


def _handshake(ticket: str, port: int) -> bytes:
    head = [
        f"GET /ws/capacity/?ticket={ticket} HTTP/1.1", f"Host: {HOST}:{port}", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}", "Sec-WebSocket-Version: 13",
    ]  # fmt: skip
    return "\r\n".join([*head, "", ""]).encode()
