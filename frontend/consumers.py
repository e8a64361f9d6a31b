"""Websockets: each is accepted, then closed with a code where it may not stay."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error

from core.redis import RedisError
from core.threads import Threads
from fleet.selectors import living_agents

from .close_codes import CloseCode, Refused
from .outbox import Outbox
from .readers import Names, Reader, names_visible_to, query_of, reader_of
from .relay import Relay, Socket

RESYNC = {"type": "resync"}


class Unrouted(AsyncWebsocketConsumer):
    """Any path that has no websocket."""

    channel_layer_alias = "none"

    async def connect(self) -> None:
        """Say so."""
        await self.accept()
        await self.close(CloseCode.UNKNOWN)


class CapacityConsumer(AsyncWebsocketConsumer):
    """`/ws/capacity/`: live meters of the agents its reader may see, `?agent=` narrowing them.

    The relay does the sending; a client says nothing but `{"type": "resync"}`.
    """

    # The relay sends straight to the sockets: a channel layer would only cost a queue each.
    channel_layer_alias = "none"

    def __init__(self, *, relay: Relay, threads: Threads) -> None:
        super().__init__()
        self._relay = relay
        self._threads = threads
        self._socket: Socket | None = None

    async def connect(self) -> None:
        """Accept, find out who it is, join the relay."""
        await self.accept()
        try:
            reader, visible, only = await self._threads.query(_admitted, self.scope)
        except Refused as refusal:
            return await self.close(refusal.code)
        except (Error, RedisError):
            return await self.close(CloseCode.TRY_AGAIN_LATER)
        outbox = Outbox(send=self.base_send, close=self.close_quietly)
        self._socket = Socket(reader=reader, visible=visible, only=only, outbox=outbox, close=self.close_quietly)
        return self._relay.join(self._socket)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Answer a resync with a snapshot; close on anything else."""
        if self._socket is None:
            return
        if _parsed(text_data) == RESYNC:
            self._relay.resync(self._socket)
        else:
            self._leave()
            await self.close_quietly(CloseCode.BAD_FRAME)

    async def disconnect(self, code: int) -> None:
        """Leave the relay."""
        self._leave()

    async def close_quietly(self, code: int) -> None:
        """Close, unless that has happened."""
        try:
            await self.close(code)
        except (OSError, RuntimeError, asyncio.CancelledError):
            return

    def _leave(self) -> None:
        if self._socket is not None:
            self._relay.leave(self._socket)
            self._socket = None


def _admitted(scope: Mapping[str, Any]) -> tuple[Reader, Names, Names | None]:
    """Who reads, what they see, and what they named; raises `Refused`."""
    reader = reader_of(scope)
    visible = names_visible_to([reader.principal])[reader.principal]
    named = query_of(scope).get("agent")
    if named is None:
        return reader, visible, None
    only = frozenset(named)
    if hidden := only - visible:
        exist = "\0" not in "".join(hidden) and living_agents().filter(name__in=hidden).count() == len(hidden)
        raise Refused(CloseCode.RIGHTS if exist else CloseCode.UNKNOWN)
    return reader, only, only


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
