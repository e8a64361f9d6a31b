"""One socket's way out: a frame is sent at once, or what is newest waits, a value an agent, until the last has left.

However slow the client and however many the changes: its memory is bounded by the number of agents.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from . import frames
from .close_codes import CloseCode
from .frames import Value, Values

SEND_SECONDS = 5


class Outbox:
    """Sends to one client through `send`; calls `close`, which never raises, when it is too slow."""

    def __init__(self, *, send: Callable[[dict[str, Any]], Awaitable[None]], close: Callable[[int], Awaitable[None]]) -> None:
        self._send = send
        self._close = close
        self._sending: asyncio.Task[None] | None = None
        self._values: dict[str, Value | None] = {}
        self._whole = False

    def snapshot(self, values: Values, frame: str) -> None:
        """Send a snapshot; `frame` is `values` encoded. It takes the place of whatever waits."""
        if not self._start(frame):
            self._values, self._whole = dict(values), True

    def delta(self, values: Values, frame: str) -> None:
        """Send changes; of what waits, older values of the same agents are dropped."""
        if not self._start(frame):
            self._values |= values

    def heartbeat(self) -> None:
        """Send a sign of life, unless something else is on its way."""
        self._start(frames.HEARTBEAT)

    def stop(self) -> None:
        """Send nothing more."""
        if self._sending is not None:
            self._sending.cancel()

    @property
    def sending(self) -> asyncio.Task[None] | None:
        """What is on its way."""
        return self._sending

    def _start(self, frame: str) -> bool:
        if self._sending is not None:
            return False
        self._sending = asyncio.create_task(self._send_all(frame))
        return True

    async def _send_all(self, frame: str) -> None:
        waiting: str | None = frame
        while waiting is not None:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._send({"type": "websocket.send", "text": waiting})
            except TimeoutError:
                return await self._close(CloseCode.TOO_SLOW)
            except (OSError, RuntimeError):
                # The client is gone, or the socket was closed meanwhile: its consumer hears of it by itself. `_sending`
                # stays, so that nothing is sent again.
                return None
            waiting = self._waiting()
        self._sending = None
        return None

    def _waiting(self) -> str | None:
        """What waits, encoded; it waits no longer."""
        values, whole = self._values, self._whole
        self._values, self._whole = {}, False
        if whole:
            return frames.snapshot({name: value for name, value in values.items() if value is not None})
        return frames.delta(values) if values else None
