"""The stack that a chaos run is about, and what can be done to its parts."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import redis

from core.embedded_store import EmbeddedStore
from tests import environment
from tests.chaos.messages import Thief
from tests.chaos.schedule import Fault, Kind
from tests.postgres import PostgresServer
from tests.proxy import Proxy
from tests.stack import Stack, StackProcess
from tests.waiting import until

FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"
HOW_TO_GET_FAKETIME = "No libfaketime found: install the faketime package"
SHIFTS = ("+3600s", "-3600s")
#: Repairs that take a minute in production take seconds here; so do all leases, see tests/stack.py.
CLOCKS = {"TRINITY_REDISPATCH_SECONDS": "3", "TRINITY_ORPHAN_SECONDS": "5"}
LEASE_SECONDS = 12
CALM_SECONDS = 60.0


def faketime_library() -> str | None:
    """The library that gives a process another clock, None where it isn't installed."""
    return next((str(path) for path in Path("/").glob(FAKETIME.removeprefix("/"))), None)


def kinds_for(*, postgres: bool) -> tuple[Kind, ...]:
    """Every fault that a stack on this database can suffer on this machine.

    On SQLite all processes are on one host and have one clock, which is the database's too.
    """
    left_out = {Kind.HOLD_DATABASE} if postgres else {Kind.STOP_DATABASE, Kind.SHIFT_CLOCK}
    if faketime_library() is None:
        left_out.add(Kind.SHIFT_CLOCK)
    return tuple(kind for kind in Kind if kind not in left_out)


class Ground:
    """Store, broker and database on servers of their own, some web processes and some workers, each in a seat."""

    def __init__(self, directory: Path, *, postgres: bool, workers: int = 2, webs: int = 2) -> None:
        """Start it all."""
        self.postgres = PostgresServer() if postgres else None
        self._broker: EmbeddedStore = environment.own_store(directory / "broker")
        self._directory = directory
        self._leaving: list[StackProcess] = []
        self._thieves: list[Thief] = []
        self._held = threading.Event()
        if self.postgres:
            self.postgres.start()
        env = CLOCKS | {"CELERY_BROKER_URL": self._broker.url}
        self.broker = self._started_broker()
        self.stack = Stack(directory, webs=webs, workers=0, database_server=self.postgres.url if self.postgres else "", **env)
        self._lines = [Lines(self.stack) for _ in range(workers)]
        self.seats = [self.stack.start_worker(ready=False, **lines.env) for lines in self._lines]
        self.calm()

    # -- Faults --------------------------------------------------------------------------------------------------------
    def begin(self, fault: Fault) -> None:
        """Do it."""
        getattr(self, f"_begin_{fault.kind.name.lower()}")(fault)

    def end(self, fault: Fault) -> None:
        """Undo it: what was killed is started again, what was stopped goes on. Nobody is waited for."""
        undo = getattr(self, f"_end_{fault.kind.name.lower()}", None)
        if undo is not None:
            undo(fault)

    def _begin_kill_worker(self, fault: Fault) -> None:
        self._kill(self.seats[fault.target])

    def _end_kill_worker(self, fault: Fault) -> None:
        self._fill(fault.target)

    def _begin_leave_worker(self, fault: Fault) -> None:
        leaving = self.seats[fault.target]
        leaving.process.terminate()
        self._leaving.append(leaving)
        self._fill(fault.target)

    def _begin_freeze_worker(self, fault: Fault) -> None:
        self.seats[fault.target].freeze()

    def _end_freeze_worker(self, fault: Fault) -> None:
        self.seats[fault.target].thaw()

    def _begin_cut_worker(self, fault: Fault) -> None:
        """Every second time its connections are cut and refused, else they are there and nothing comes through."""
        self._lines[fault.target].cut(hang=_is_even(fault))

    def _end_cut_worker(self, fault: Fault) -> None:
        self._lines[fault.target].mend()

    def _begin_shift_clock(self, fault: Fault) -> None:
        self._kill(self.seats[fault.target])
        library = faketime_library()
        assert library is not None, HOW_TO_GET_FAKETIME
        shift = SHIFTS[_is_even(fault)]
        self._fill(fault.target, LD_PRELOAD=library, FAKETIME=shift, FAKETIME_DONT_FAKE_MONOTONIC="1", DONT_FAKE_MONOTONIC="1")

    def _end_shift_clock(self, fault: Fault) -> None:
        self._kill(self.seats[fault.target])
        self._fill(fault.target)

    def _begin_kill_web(self, fault: Fault) -> None:
        self._kill(self.stack.webs[fault.target])

    def _end_kill_web(self, fault: Fault) -> None:
        self.stack.webs[fault.target] = self.stack.start_web(fault.target, ready=False)

    def _begin_freeze_web(self, fault: Fault) -> None:
        self.stack.webs[fault.target].freeze()

    def _end_freeze_web(self, fault: Fault) -> None:
        self.stack.webs[fault.target].thaw()

    def _begin_flush_store(self, _fault: Fault) -> None:
        self.stack.redis.flushall()

    def _begin_kill_store(self, _fault: Fault) -> None:
        self.stack.store.kill()
        self._snapshot.unlink(missing_ok=True)

    def _end_kill_store(self, _fault: Fault) -> None:
        self.stack.start_store()

    def _begin_old_store(self, _fault: Fault) -> None:
        self.stack.redis.save()

    def _end_old_store(self, _fault: Fault) -> None:
        """What happened since the snapshot is unknown to the store that comes back."""
        self.stack.store.kill()
        self.stack.start_store()

    def _begin_hang_store(self, fault: Fault) -> None:
        self.stack.store.freeze()

    def _end_hang_store(self, _fault: Fault) -> None:
        self.stack.store.thaw()

    def _begin_slow_store(self, fault: Fault) -> None:
        _Brake(self.stack.redis, seconds=fault.lasts)

    def _begin_kill_broker(self, _fault: Fault) -> None:
        self.broker.kill()

    def _end_kill_broker(self, _fault: Fault) -> None:
        self.broker = self._started_broker()

    def _begin_drop_messages(self, fault: Fault) -> None:
        self._thieves.append(Thief(self._broker.url, seconds=fault.lasts, copies=0))

    def _begin_repeat_messages(self, fault: Fault) -> None:
        self._thieves.append(Thief(self._broker.url, seconds=fault.lasts, copies=3))

    def _begin_stop_database(self, _fault: Fault) -> None:
        assert self.postgres is not None
        self.postgres.stop()

    def _end_stop_database(self, _fault: Fault) -> None:
        assert self.postgres is not None
        self.postgres.start(ready=False)

    def _begin_hold_database(self, _fault: Fault) -> None:
        self._held.clear()
        threading.Thread(target=self._hold_database, daemon=True).start()

    def _end_hold_database(self, _fault: Fault) -> None:
        self._held.set()

    # -- Looking at it ---------------------------------------------------------------------------------------------------
    @property
    def stolen(self) -> int:
        """How many messages were dropped or repeated."""
        return sum(thief.taken for thief in self._thieves)

    def broker_answers(self) -> bool:
        """Whether the broker is there."""
        with redis.Redis.from_url(self._broker.url, socket_timeout=1, socket_connect_timeout=1) as connection:
            try:
                return bool(connection.ping())
            except redis.RedisError:
                return False

    def calm(self) -> None:
        """Wait until everything runs and answers, and whoever was told to leave has left."""
        if self.postgres:
            until(self.postgres.answers, CALM_SECONDS)
        until(self.broker_answers, CALM_SECONDS)
        for seat in self.seats:
            until(lambda worker=seat: worker.said(" ready."), CALM_SECONDS)
        for process in self._leaving:
            process.process.wait(CALM_SECONDS)
        with self.stack.api("") as client:
            for url in self.stack.urls:
                until(lambda url=url: _is_ready(client, url), CALM_SECONDS)

    def store_name(self) -> str:
        """Which server the slots are on, and its version."""
        told = self.stack.redis.info("server")
        return f"Valkey {told['valkey_version']}" if "valkey_version" in told else f"Redis {told['redis_version']}"

    def logs(self) -> Iterator[tuple[str, str]]:
        """Every process's output by its name."""
        for path in sorted(self._directory.glob("*.log")):
            yield path.name, path.read_text(errors="replace")

    def close(self) -> None:
        """End everything."""
        for process in self._leaving:
            if process.running:
                process.kill()
        self.stack.close()
        for lines in self._lines:
            lines.close()
        self.broker.kill()
        if self.postgres:
            self.postgres.close()

    # -- Steps -----------------------------------------------------------------------------------------------------------
    @property
    def _snapshot(self) -> Path:
        return self._directory / "valkey" / "dump.rdb"

    def _kill(self, process: StackProcess) -> None:
        if process.running:
            process.kill()

    def _fill(self, number: int, **env: str) -> None:
        self.stack.workers.remove(self.seats[number])
        self.seats[number] = self.stack.start_worker(ready=False, **self._lines[number].env, **env)

    def _started_broker(self) -> StackProcess:
        process = StackProcess("broker", self._broker.argv(), env=self._environment(), logs=self._directory)
        until(lambda: self.broker_answers() or not process.running)
        return process

    def _environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin"}

    def _hold_database(self) -> None:
        with contextlib.closing(sqlite3.connect(self._directory / "db.sqlite3", timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._held.wait(30)
            connection.execute("ROLLBACK")


class Lines:
    """The connections of one worker to store, broker and, where it isn't a file, database: each through a proxy."""

    def __init__(self, stack: Stack) -> None:
        servers = {"REDIS_URL": stack.store_url, "CELERY_BROKER_URL": stack.broker_url}
        servers |= {name: stack.env[name] for name in ("DATABASE_URL",) if name in stack.env}
        self._proxies = {name: Proxy(urlsplit(url).port or 0) for name, url in servers.items()}
        self.env = {name: proxy.through(servers[name]) for name, proxy in self._proxies.items()}

    def cut(self, *, hang: bool) -> None:
        """Let nothing through."""
        for proxy in self._proxies.values():
            (proxy.hang if hang else proxy.stop)()

    def mend(self) -> None:
        """Let everything through."""
        for proxy in self._proxies.values():
            proxy.resume()

    def close(self) -> None:
        """End the proxies."""
        for proxy in self._proxies.values():
            proxy.close()


def _is_even(fault: Fault) -> bool:
    """What decides between two kinds of a fault: its moment, and with it the seed."""
    return round(fault.at * 100) % 2 == 0


class _Brake(threading.Thread):
    """Makes a store slow for some seconds: it stands still for a moment, again and again."""

    def __init__(self, store: redis.Redis, *, seconds: float) -> None:
        super().__init__(name="brake", daemon=True)
        self._store, self._seconds = store, seconds
        self.start()

    def run(self) -> None:
        """Until the time is over."""
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            with contextlib.suppress(redis.RedisError):
                self._store.execute_command("CLIENT", "PAUSE", "150", "ALL")
            time.sleep(0.3)


def _is_ready(client: httpx.Client, url: str) -> bool:
    """Whether the web process answers that it is; one that was killed may not listen yet."""
    try:
        return client.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False
