"""`/ws/executions/{id}/`: one execution's log and state, from entry `?after=` on, to its end."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error

from core.redis import RedisError
from core.threads import Threads
from fleet.errors import AccessDenied
from runtime.errors import ExecutionNotFound
from runtime.selectors import execution_for

from . import frames
from .close_codes import CloseCode, Refused
from .execution_reads import Look
from .execution_relay import ExecutionRelay, Watcher
from .outbox import SEND_SECONDS
from .readers import Reader, query_of, reader_of
from .relay import HEARTBEAT_SECONDS

LARGEST_SEQ = 2**63 - 1
NORMAL = 1000
#: Pause before a read that failed is tried again.
AGAIN_SECONDS = 1


class ExecutionConsumer(AsyncWebsocketConsumer):
    """Tells one reader of one execution: entries in order, each once; its state as it changes; `end`, and closes.

    One task a socket does the sending, a page of entries at a time. A client says nothing.
    """

    channel_layer_alias = "none"

    def __init__(self, *, executions: ExecutionRelay, threads: Threads) -> None:
        super().__init__()
        self._relay = executions
        self._threads = threads
        self._watcher: Watcher | None = None
        self._following: asyncio.Task[None] | None = None
        self._after = 0

    async def connect(self) -> None:
        """Accept, find out who it is, begin to tell."""
        await self.accept()
        execution_id = self.scope["url_route"]["kwargs"]["execution_id"]
        try:
            reader, agent_id, self._after = await self._threads.query(_admitted, self.scope, execution_id)
        except Refused as refusal:
            return await self.close(refusal.code)
        except (Error, RedisError):
            return await self.close(CloseCode.TRY_AGAIN_LATER)
        self._watcher = Watcher(execution_id=execution_id, agent_id=agent_id, reader=reader, close=self.stop)
        self._relay.join(self._watcher)
        self._following = asyncio.create_task(self._follow(self._watcher))
        return None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """There is nothing to say here."""
        await self.stop(CloseCode.BAD_FRAME)

    async def disconnect(self, code: int) -> None:
        """Forget it."""
        self._leave()

    async def stop(self, code: int) -> None:
        """Tell no more, and close; unless that has happened."""
        self._leave()
        await self._close_quietly(code)

    def _leave(self) -> None:
        if self._watcher is not None:
            self._relay.leave(self._watcher)
            self._watcher = None
        if self._following is not None and self._following is not asyncio.current_task():
            self._following.cancel()

    async def _close_quietly(self, code: int) -> None:
        try:
            await self.close(code)
        except (OSError, RuntimeError, asyncio.CancelledError):
            return

    # -- Telling -------------------------------------------------------------------------------------------------------
    async def _follow(self, watcher: Watcher) -> None:
        """Tell all there is until it ends; the client that takes nothing for too long is let go."""
        try:
            await self.stop(await self._tell_all(watcher))
        except TimeoutError:
            await self.stop(CloseCode.TOO_SLOW)
        except (OSError, RuntimeError):
            # The client is gone, or the socket was closed meanwhile: the consumer hears of it by itself.
            self._leave()

    async def _tell_all(self, watcher: Watcher) -> int:
        """Returns the code to close with."""
        told: dict[str, Any] | None = None
        while True:
            look = watcher.look
            watcher.news.clear()
            if watcher.gone:
                return CloseCode.UNKNOWN
            if look is not None:
                if not await self._tell_entries(watcher, look):
                    continue
                if look.state != told:
                    told = look.state
                    await self._send(frames.execution(told))
                if look.ended:
                    await self._send(frames.END)
                    return NORMAL
            await self._news_or_heartbeat(watcher)

    async def _tell_entries(self, watcher: Watcher, look: Look) -> bool:
        """Send what the log has behind the last entry sent, up to the one looked at; False where the database gave no answer."""
        try:
            while self._after < look.last and (page := await self._relay.page_behind(watcher.execution_id, self._after)):
                await self._send(page.frame)
                self._after = page.last
        except Error:
            await asyncio.sleep(AGAIN_SECONDS)
            return False
        return True

    async def _news_or_heartbeat(self, watcher: Watcher) -> None:
        while not watcher.news.is_set():
            try:
                await asyncio.wait_for(watcher.news.wait(), HEARTBEAT_SECONDS)
            except TimeoutError:
                await self._send(frames.HEARTBEAT)

    async def _send(self, frame: str) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await self.base_send({"type": "websocket.send", "text": frame})


def _admitted(scope: Mapping[str, Any], execution_id: uuid.UUID) -> tuple[Reader, int, int]:
    """Who reads, of which agent, and after which entry; raises `Refused`."""
    reader, after = reader_of(scope), _after(scope)
    try:
        row = execution_for(principal=reader.principal, execution_id=execution_id)
    except ExecutionNotFound as error:
        raise Refused(CloseCode.UNKNOWN) from error
    except AccessDenied as error:
        raise Refused(CloseCode.RIGHTS) from error
    return reader, row.agent_id, after


def _after(scope: Mapping[str, Any]) -> int:
    sent = query_of(scope).get("after", ["0"])[-1]
    if not (sent.isascii() and sent.isdigit() and len(sent) <= 19 and int(sent) <= LARGEST_SEQ):
        raise Refused(CloseCode.BAD_FRAME)
    return int(sent)
