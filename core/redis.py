"""The process's Redis client, and Lua scripts kept as files.

One pool a process with time-outs and a bound (`settings.CACHES`); a command is tried at most twice, so every script must
bear being run twice.
"""

from functools import cache
from pathlib import Path
from typing import Any

import redis
import redis.exceptions
from django_redis import get_redis_connection
from redis.commands.core import Script as RegisteredScript

RedisError = redis.exceptions.RedisError


@cache
def client() -> redis.Redis:
    """The shared client, safe in threads and after a fork; answers are bytes."""
    return get_redis_connection("default")


class Script:
    """One Lua file, sent to the server once and then called by its digest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self._registered: RegisteredScript | None = None

    @property
    def name(self) -> str:
        """The file's name without `.lua`."""
        return self.path.stem

    def __call__(self, *, keys: list[str], args: list[Any]) -> Any:
        """The script's answer; raises redis-py's errors as they are."""
        if self._registered is None:
            self._registered = client().register_script(self.text)
        return self._registered(keys=keys, args=args)
