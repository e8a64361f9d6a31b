"""Signs of life: each worker process leaves one in the slot store every few seconds, for people to see who is there.

Nothing is decided by them. Whose lease holds is the gate's to say.
"""

import contextlib
import os
from dataclasses import asdict, dataclass
from typing import cast

from django.core.cache import cache
from django_redis.cache import RedisCache

from core.conf import conf
from core.redis import RedisError

#: Beaten at each sweep; a worker that has missed so many is gone or frozen.
MISSED, SHORTEST_SECONDS = 5, 20
PREFIX = "worker:"


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker process that is alive: where, and how many runs it carries at once."""

    host: str
    pid: int
    threads: int


def beat(*, threads: int) -> None:
    """Leave a sign of this process; a store that is away is no reason to stop."""
    me = Worker(host=os.uname().nodename, pid=os.getpid(), threads=threads)
    with contextlib.suppress(RedisError):
        cache.set(_key(me), asdict(me), max(SHORTEST_SECONDS, MISSED * conf.sweep_seconds))


def stop() -> None:
    """Take this process's sign away: it has left."""
    with contextlib.suppress(RedisError):
        cache.delete(_key(Worker(host=os.uname().nodename, pid=os.getpid(), threads=0)))


def living() -> list[Worker]:
    """Who is there; raises `RedisError`."""
    found = cache.get_many(list(cast("RedisCache", cache).iter_keys(f"{PREFIX}*")))
    return sorted((Worker(**sign) for sign in found.values()), key=lambda worker: (worker.host, worker.pid))


def _key(worker: Worker) -> str:
    return f"{PREFIX}{worker.host}:{worker.pid}"
