"""What runs in a web process for as long as it serves: background work, and a word before it stops."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import FrameType
from typing import Any

import structlog

log = structlog.get_logger(__name__)

RESTART_SECONDS = 1
Message = MutableMapping[str, Any]


class Lifespan:
    """The ASGI lifespan protocol as a context manager: entered before the first request, left after the last."""

    def __init__(self, running: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._running = running

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        """Serve the protocol once."""
        await receive()
        async with self._running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def in_background(*jobs: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """The jobs run while the block does; one that fails is logged and begins again."""
    tasks = [asyncio.create_task(_kept_running(job)) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _kept_running(job: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await job()
        except Exception:
            log.exception("background.failed", job=getattr(job, "__qualname__", repr(job)))
        await asyncio.sleep(RESTART_SECONDS)


def before_exit(call: Callable[[], None]) -> None:
    """Run `call` on the event loop at SIGTERM or SIGINT, before the server's own handler.

    The server tells the lifespan of its end only when the last connection has closed: too late for those that wait.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        _chain(number, loop, call)


def _chain(number: signal.Signals, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    former = signal.getsignal(number)

    def handle(received: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(call)
        if callable(former):
            former(received, frame)

    signal.signal(number, handle)
