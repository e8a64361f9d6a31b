"""The process's one subscription to Redis: hears channels, calls what was given for each, comes back by itself.

What was published while it was away is lost; `on_return` is called each time it listens again, to look for oneself.
"""

import asyncio
from collections.abc import Callable, Mapping

import redis.asyncio
import structlog
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
#: A connection on which nothing is heard is asked for a sign of life; without one it counts as dead.
QUIET_SECONDS = 5

Handler = Callable[[bytes], None]


class Subscriber:
    """Listens for as long as `run` runs."""

    def __init__(
        self,
        *,
        url: str,
        handlers: Mapping[str, Handler],
        on_return: Callable[[], None],
    ) -> None:
        """`handlers` by channel; they and `on_return` are called on the event loop and must not block."""
        self._url = url
        self._handlers = {channel.encode(): handler for channel, handler in handlers.items()}
        self._on_return = on_return
        self.listening = False

    async def run(self) -> None:
        """Listen for ever; every loss of the connection is logged and mended."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._listen()
            except (RedisError, OSError) as error:
                if self.listening:
                    pause = FIRST_PAUSE_SECONDS
                self.listening = False
                log.warning("subscriber.lost", reason=str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _listen(self) -> None:
        # No retry of its own: it would subscribe again unseen, and what was missed would not be looked for.
        client = redis.asyncio.Redis.from_url(
            self._url,
            socket_connect_timeout=1,
            socket_timeout=2,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            async with client.pubsub() as pubsub:
                await pubsub.subscribe(*self._handlers)
                await self._hear(pubsub)
        finally:
            self.listening = False
            await client.aclose()

    async def _hear(self, pubsub: PubSub) -> None:
        asked = False
        while True:
            message = await pubsub.get_message(timeout=QUIET_SECONDS)
            if message is not None:
                asked = False
                self._take(message)
            elif asked:
                raise OSError("no sign of life")
            else:
                asked = True
                await pubsub.ping()

    def _take(self, message: dict[str, object]) -> None:
        if message["type"] == "subscribe":
            # The answer to the last of the channels: from here on nothing is missed.
            if message["data"] == len(self._handlers):
                self.listening = True
                log.info("subscriber.listening")
                self._on_return()
        elif message["type"] == "message" and isinstance(message["channel"], bytes) and isinstance(message["data"], bytes):
            self._handlers[message["channel"]](message["data"])
