"""A whole Trinity as processes: slot store, migrated database, web, workers; spoken to by HTTP, SQL and Redis only."""

import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import redis
from celery import Celery
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from core.embedded_store import EmbeddedStore, free_port
from core.tether import tethered
from tests import environment
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0
#: Short leases and passes: what takes minutes in production takes seconds here.
CLOCKS = {
    "TRINITY_LEASE_SECONDS": "12",
    "TRINITY_LEASE_RENEW_SECONDS": "1",
    "TRINITY_SWEEP_SECONDS": "0.5",
    "TRINITY_RECONCILE_SECONDS": "1",
    "TRINITY_GRACE_SECONDS": "5",
}
_PEOPLE = """
import json
from django.contrib.auth.models import User
from fleet import services
people = {"superuser": User.objects.create_superuser("root", password="root-password"),
          "owner": User.objects.create_user("olga", password="olga-password"),
          "stranger": User.objects.create_user("sten", password="sten-password")}
print(json.dumps({name: services.create_key(owner=user, scope="user", name="tests").key for name, user in people.items()}))
"""


class StackProcess:
    """One process of the stack, tied to this one; its output is a file."""

    def __init__(self, name: str, argv: list[str], *, env: dict[str, str], logs: Path) -> None:
        """Start it."""
        self.name = name
        self.log = logs / f"{name}.{secrets.token_hex(3)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                tethered(argv), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def said(self, text: str) -> bool:
        """Whether it said `text`; it must not have ended before."""
        output = self.log.read_text(errors="replace")
        assert text in output or self.running, f"{self.name} ended with {self.process.returncode}:\n{output}"
        return text in output

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it alone."""
        self.process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP: it is there, holds what it holds, and does nothing."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        self.signal(signal.SIGCONT)

    def stop(self, seconds: float = 20) -> int:
        """End it as an operator would; its exit code. One that doesn't end is killed, and that is a failure."""
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {seconds} s of SIGTERM:\n{self.log.read_text()}") from error

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


class Stack:
    """The processes, and the ways to speak to them. Shared by all tests of a process: use fresh agent names."""

    def __init__(
        self,
        directory: Path,
        *,
        webs: int = 1,
        workers: int = 1,
        database_server: str | None = None,
        through: Sequence[str] = (),
        **env: str,
    ) -> None:
        """Start everything and wait until it answers; `env` adds to everybody's settings.

        `database_server`: the PostgreSQL server to make a database on, "" for SQLite; None: what `TEST_DATABASE_URL` says.
        `through`: interpreter arguments that stand before those of each web process and worker, a wrapper's.
        """
        self.directory = directory
        self._extra = env
        self._through = through
        self.ports = [free_port() for _ in range(webs)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.url = self.urls[0]
        #: Pages of another server at this port may read the API.
        self.other_port = free_port()
        self._database = _Database(
            directory, server=os.environ.get("TEST_DATABASE_URL", "") if database_server is None else database_server
        )
        self._store = environment.own_store(directory / "valkey")
        self.env = self._environment()
        self.workers: list[StackProcess] = []
        self._clients: list[httpx.Client] = []
        self.store = self._started_store()
        self.redis = redis.Redis.from_url(self._store.url)
        self.keys = self._database.filled(self._command)
        self.webs = [self.start_web(number, ready=False) for number in range(webs)]
        started = [self.start_worker(ready=False) for _ in range(workers)]
        for number in range(webs):
            self._await_web(number)
        for worker in started:
            self._await_worker(worker)

    @property
    def web(self) -> StackProcess:
        """The web process, the first where there are several."""
        return self.webs[0]

    # -- Speaking to it ----------------------------------------------------------------------------------------------
    @property
    def owner_key(self) -> str:
        """A user key of the person `olga`."""
        return self.keys["owner"]

    @property
    def superuser_key(self) -> str:
        """A user key of the superuser `root`."""
        return self.keys["superuser"]

    @property
    def store_url(self) -> str:
        """Where the slots are."""
        return self._store.url

    @property
    def broker_url(self) -> str:
        """Where the messages are."""
        return self.env.get("CELERY_BROKER_URL", self._store.url)

    def api(self, key: str | None = None) -> httpx.Client:
        """A client with a key, the owner's if none is given; "" for none."""
        key = self.owner_key if key is None else key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        self._clients.append(client)
        return client

    def make_agent(self, *, runtime: dict[str, Any], limit: int = 3, depth: int = 50, key: str | None = None, **fields: Any) -> str:
        """A new agent, made over the API; its name. Commands are the superuser's to make."""
        key = key or (self.superuser_key if runtime["kind"] == "command" else self.owner_key)
        name = f"agent-{uuid.uuid4().hex[:12]}"
        body = {"name": name, "runtime": runtime} | fields
        made = self.api(key).post("/api/agents/", json=body)
        assert made.status_code == httpx.codes.CREATED, made.text
        limits = {"max_parallel_tasks": limit, "max_backlog_depth": depth}
        changed = self.api(key).put(f"/api/agents/{name}/capacity", json=limits)
        assert changed.status_code == httpx.codes.OK, changed.text
        return name

    def sql(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """The rows of a query with `%s` for its parameters; UUIDs as the database keeps them."""
        return self._database.run(query, parameters)

    def publish(self, task: str, *arguments: str) -> None:
        """Put a Celery message on the broker, as any publisher may, again and again."""
        with Celery(broker=self.broker_url, set_as_current=False) as publisher:
            publisher.conf.broker_transport_options = {"global_keyprefix": "celery:"}
            publisher.send_task(task, args=arguments, queue="trinity", ignore_result=True)

    # -- Its processes -----------------------------------------------------------------------------------------------
    def start_worker(self, *, ready: bool = True, threads: int = 32, **env: str) -> StackProcess:
        """One more worker, ready when this returns unless told otherwise; `env` changes its settings."""
        name = f"worker{len(self.workers)}-{secrets.token_hex(3)}"
        options = ["-P", "threads", "-c", str(threads), "-Q", "trinity", "-n", f"{name}@%h", "--loglevel", "INFO"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        worker = self._process(name, [*self._through, "-m", "celery", "-A", "trinity", "worker", *options, *quiet], **env)
        self.workers.append(worker)
        if ready:
            self._await_worker(worker)
        return worker

    def _await_worker(self, worker: StackProcess) -> None:
        until(lambda: worker.said(" ready."), START_SECONDS)

    def kill_worker(self, worker: StackProcess | None = None) -> None:
        """kill -9 of one worker, the oldest if none is named."""
        worker = worker or self.workers[0]
        worker.kill()
        self.workers.remove(worker)

    def stop_worker(self, worker: StackProcess | None = None) -> None:
        """SIGTERM to one worker, the oldest if none is named, and its end."""
        worker = worker or self.workers[0]
        self.workers.remove(worker)
        worker.stop()

    def restart_worker(self) -> StackProcess:
        """The oldest worker ended by SIGTERM, and another in its place."""
        self.stop_worker()
        return self.start_worker()

    def restart_web(self) -> None:
        """The web process ended by SIGTERM, and another on the same port."""
        self.web.stop()
        self.webs[0] = self.start_web()

    def start_web(self, number: int = 0, *, ready: bool = True) -> StackProcess:
        """The web process of that number, which answers when this returns unless told otherwise."""
        arguments = [*self._through, "manage.py", "serve", "--host", "127.0.0.1", "--port", str(self.ports[number])]
        process = self._process(f"web{number}", arguments)
        if ready:
            self._await_web(number, process)
        return process

    def _await_web(self, number: int, process: StackProcess | None = None) -> None:
        web = process or self.webs[number]
        until(lambda: not web.running or _is_ready(self.urls[number]), START_SECONDS)
        assert web.running, web.log.read_text()

    def restart_store(self, *, kill: bool = True) -> None:
        """The slot store gone and back, empty, on the same port."""
        if kill:
            self.store.kill()
        else:
            self.store.stop()
        self.start_store()

    def start_store(self) -> None:
        """The slot store that was ended, back on its port."""
        self.store = self._started_store()

    def ensure_whole(self) -> None:
        """Put back what a test killed."""
        if not self.store.running:
            self.store = self._started_store()
        self.webs = [web if web.running else self.start_web(number) for number, web in enumerate(self.webs)]
        self.workers = [worker for worker in self.workers if worker.running]
        if not self.workers:
            self.start_worker()

    def close(self) -> None:
        """End everything."""
        for client in self._clients:
            client.close()
        for process in [*self.workers, *self.webs]:
            if process.running:
                process.kill()
        self.redis.close()
        self.store.kill()
        self._database.close()

    # -- Starting ----------------------------------------------------------------------------------------------------
    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRINITY_") and name != "DATABASE_URL"}
        own = {
            "DJANGO_SETTINGS_MODULE": "trinity.settings",
            "PYTHONUNBUFFERED": "1",
            "REDIS_URL": self._store.url,
            "TRINITY_CORS_ORIGINS": f"http://127.0.0.1:{self.other_port}",
            "TRINITY_DATA_DIR": str(self.directory),
            # All tests of a process sign in as the same few people, from one address.
            "TRINITY_LOGIN_RATE": "1000/min",
        }
        return inherited | own | self._database.env | CLOCKS | self._extra

    def _process(self, name: str, arguments: list[str], **env: str) -> StackProcess:
        return StackProcess(name, [sys.executable, *arguments], env=self.env | env, logs=self.directory)

    def _command(self, *arguments: str) -> str:
        argv = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(argv, check=False, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=START_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _started_store(self) -> StackProcess:
        process = StackProcess("store", self._store.argv(), env=self.env, logs=self.directory)
        until(lambda: _answers(self._store) or not process.running)
        assert process.running, process.log.read_text()
        return process


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _answers(store: EmbeddedStore) -> bool:
    with redis.Redis.from_url(store.url, socket_connect_timeout=1, socket_timeout=1) as connection:
        try:
            return bool(connection.ping())
        except redis.RedisError:
            return False


#: The people's keys and the file of a database that has tables and people, once there is one.
_seed: list[tuple[dict[str, str], bytes]] = []
# A look at the database fails rather than hangs: a schedule that stops the server may take it away in mid-look.
_SOON: dict[str, str | int] = {"connect_timeout": 10, "options": "-c statement_timeout=20s", "tcp_user_timeout": 20_000}


class _Database:
    """The stack's own: a file, or a fresh one on a PostgreSQL server."""

    def __init__(self, directory: Path, *, server: str) -> None:
        self._file = directory / "db.sqlite3"
        self._server = server
        self._name = f"trinity_stack_{secrets.token_hex(6)}"
        self.env: dict[str, str] = {}
        if self._server:
            self._on_server(f"CREATE DATABASE {self._name}")
            self._url = urlunsplit(urlsplit(self._server)._replace(path=f"/{self._name}"))
            self.env = {"DATABASE_URL": self._url}

    def filled(self, command: Callable[..., str]) -> dict[str, str]:
        """Make tables and people by `command`; the people's keys.

        A file is copied from the first one that this process had made: that saves each further stack two processes.
        """
        if not self._server and _seed:
            keys, seed = _seed[0]
            self._file.write_bytes(seed)
            return dict(keys)
        command("migrate", "--verbosity", "0")
        keys = json.loads(command("shell", "--no-imports", "-c", _PEOPLE).splitlines()[-1])
        if not self._server:
            with closing(sqlite3.connect(self._file)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            _seed.append((keys, self._file.read_bytes()))
        return keys

    def run(self, query: str, parameters: tuple[Any, ...]) -> list[dict[str, Any]]:
        if self._server:
            with psycopg.connect(make_conninfo(self._url, **_SOON), row_factory=dict_row) as connection:
                cursor = connection.execute(query, parameters)  # type: ignore[arg-type]
                return list(cursor.fetchall()) if cursor.description else []
        with closing(sqlite3.connect(self._file, timeout=20)) as connection, connection:
            connection.row_factory = sqlite3.Row
            plain = [value.hex if isinstance(value, uuid.UUID) else value for value in parameters]
            return [dict(row) for row in connection.execute(query.replace("%s", "?"), plain)]

    def close(self) -> None:
        if self._server:
            self._on_server(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")

    def _on_server(self, statement: str) -> None:
        with psycopg.connect(make_conninfo(self._server, **_SOON), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]
