"""Whether the slot store is a server that slots can be kept in."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.checkup.clocks import compared
from core.checkup.findings import ANSWER_SECONDS, Finding, State, fail, ok, one_line, warn
from core.conf import conf
from core.redis import RedisError

from . import keys
from .slots import SCRIPTS

#: What the scripts need: the first versions that were tried.
LOWEST = {"Redis": (6, 2), "Valkey": (7, 2)}
MEND_REACH = "Start it, or set REDIS_URL to where it is"
SERVER_IN_SCRIPT = "return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')"
FULL = 0.9


def check_slot_store(url: str | None = None) -> Iterator[Finding]:
    """The server at `url`, else at `REDIS_URL`, asked by a client without patience."""
    url = url or settings.REDIS_URL
    client = redis.Redis.from_url(
        url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS, retry=Retry(NoBackoff(), 0), decode_responses=True
    )
    with client:
        try:
            info = client.info()
            server = _server(info, url)
            yield server
            if server.state is State.FAIL:
                return  # it is the wrong one, whatever else may be said of it
            yield _memory(info)
            yield _connections(info)
            yield _clock(client)
            yield from _scripts(client)
        except (RedisError, OSError) as error:
            yield fail("slot store", f"{_place(url)} is out of reach: {one_line(error)}", MEND_REACH)


def _server(info: dict[str, Any], url: str) -> Finding:
    kind = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version") or info["redis_version"])
    seen = f"{kind} {version} at {_place(url)}"
    if info.get("redis_mode") == "cluster" or info.get("server_mode") == "cluster" or info.get("cluster_enabled") == 1:
        return fail("slot store", f"{seen} is a cluster", "Use a single server: a script touches keys of several hash slots")
    if _parsed(version) < LOWEST[kind]:
        return fail("slot store", seen, "Use Redis 6.2 or newer, or Valkey 7.2 or newer")
    if info.get("role") not in {None, "master"}:
        return fail("slot store", f"{seen} is a replica", "Set REDIS_URL to the server that is written to")
    return ok("slot store", seen)


def _memory(info: dict[str, Any]) -> Finding:
    policy, most, used = str(info.get("maxmemory_policy", "")), int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    seen = f"{policy}, {_megabytes(used)} used" + (f" of {_megabytes(most)}" if most else "")
    if policy != "noeviction":
        return fail("slot store memory", f"{seen}: slots may be thrown away", "CONFIG SET maxmemory-policy noeviction, and in redis.conf")
    if most and used > FULL * most:
        return warn("slot store memory", f"{seen}: nearly full, writes will be refused", "Raise maxmemory")
    return ok("slot store memory", seen)


def _connections(info: dict[str, Any]) -> Finding:
    """How many clients there are, and whether one more process could get its own."""
    now, most = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    refused = int(info.get("rejected_connections", 0))
    seen = f"{now} of at most {most}" if most else str(now)
    process = max(conf.web_threads, conf.worker_threads)
    if most and now + process > FULL * most:
        return warn(
            "slot store clients", f"{seen}: the next process may be refused", "Raise maxclients, and the server's limit of open files"
        )
    if refused:
        return warn("slot store clients", f"{seen}; {refused} were refused since it started", "Raise maxclients")
    return ok("slot store clients", seen)


def _clock(client: redis.Redis) -> Finding:
    before = time.time()
    seconds, micros = client.time()
    return compared("slot store clock", theirs=seconds + micros / 1e6, before=before, after=time.time())


def _scripts(client: redis.Redis) -> Iterator[Finding]:
    try:
        for script in SCRIPTS.values():
            client.script_load(script.text)
        run_id = client.eval(SERVER_IN_SCRIPT, 0)
    except redis.exceptions.ResponseError as error:
        yield fail("slot store scripts", f"Scripts don't run: {one_line(error)}", "Allow the user SCRIPT, EVAL, EVALSHA and INFO")
        return
    yield ok("slot store scripts", f"{len(SCRIPTS)} load, and see the server's run id")
    if client.get(keys.epoch()) == run_id:
        yield ok("slots", "Open")
    else:
        yield warn(
            "slots", "The store is empty or was restarted, and not yet filled from the rows", "Start a worker, or manage.py housekeep"
        )


def _place(url: str) -> str:
    """Where it is, without the password."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
