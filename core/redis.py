"""The process's Redis client, and Lua scripts kept as files.

One pool a process with time-outs and a bound (`settings.CACHES`); a command is tried at most twice, so every script must
bear being run twice.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import redis
import redis.exceptions
from django_redis import get_redis_connection
from redis.commands.core import Script as RegisteredScript

RedisError = redis.exceptions.RedisError

#: The keys and the arguments of one call of a script.
Call = tuple[Sequence[str], Sequence[Any]]


@cache
def client() -> redis.Redis:
    """The shared client, safe in threads and after a fork; answers are bytes."""
    return get_redis_connection("default")


class Script:
    """One Lua file, behind the functions it shares with others (`prelude`); sent once and then called by its digest."""

    def __init__(self, path: Path, *, prelude: Path | None = None) -> None:
        self.path = path
        self.text = (prelude.read_text() if prelude else "") + path.read_text()
        self._registered: RegisteredScript | None = None

    @property
    def name(self) -> str:
        """The file's name without `.lua`."""
        return self.path.stem

    def __call__(self, *, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """The script's answer; raises redis-py's errors as they are."""
        return self._script(keys=keys, args=args)

    def each(self, calls: Sequence[Call]) -> list[Any]:
        """The answers to several calls, sent in one round trip; each call is a step of its own."""
        answers = self._sent(calls)
        if not any(isinstance(answer, redis.exceptions.NoScriptError) for answer in answers):
            return answers
        # A server that started anew has forgotten it. Calls that did run bear a second one.
        client().script_load(self.text)
        return self._sent(calls, strict=True)

    def _sent(self, calls: Sequence[Call], *, strict: bool = False) -> list[Any]:
        with client().pipeline(transaction=False) as pipe:
            for keys, args in calls:
                pipe.evalsha(self._script.sha, len(keys), *keys, *args)
            answers = pipe.execute(raise_on_error=strict)
        for answer in answers:
            if isinstance(answer, RedisError) and not isinstance(answer, redis.exceptions.NoScriptError):
                raise answer
        return answers

    @property
    def _script(self) -> RegisteredScript:
        if self._registered is None:
            self._registered = client().register_script(self.text)
        return self._registered
