"""The ground of one benchmark: a slot store, a database and a data directory of its own, gone afterwards."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

from core.embedded_store import EmbeddedStore, free_port, server_program
from core.tether import tethered

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0
#: What would point a benchmark at somebody's running Trinity.
FOREIGN = ("REDIS_URL", "DATABASE_URL", "CELERY_BROKER_URL", "DEBUG", "LOG_LEVEL", "SECRET_KEY", "ALLOWED_HOSTS")


class Process:
    """A process that dies with this one; it writes to a file."""

    def __init__(self, name: str, argv: list[str], *, env: Mapping[str, str], directory: Path) -> None:
        """Start it."""
        self.name = name
        self.log = directory / f"{name}.{secrets.token_hex(3)}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                tethered(argv), cwd=ROOT, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def require(self) -> None:
        """Raise, with what it said, where it has ended."""
        if not self.running:
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{self.log.read_text(errors='replace')[-4000:]}")

    def said(self, text: str) -> bool:
        """Whether it said `text` already."""
        self.require()
        return text in self.log.read_text(errors="replace")

    def freeze(self) -> None:
        """Let it do nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait()

    def end(self) -> None:
        """End it, at once where it doesn't listen."""
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def ground(*, postgres: str) -> Iterator[dict[str, str]]:
    """The environment of a fresh ground; `postgres` is a server's URL, or "" for a database file."""
    directory = Path(tempfile.mkdtemp(prefix="trinity-bench-"))
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRINITY_") and name not in FOREIGN}
    try:
        with _store(directory, env) as url, _database(postgres) as database:
            yield env | database | {"REDIS_URL": url, "TRINITY_DATA_DIR": str(directory), "LOG_LEVEL": "WARNING"}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _store(directory: Path, env: Mapping[str, str]) -> Iterator[str]:
    store = EmbeddedStore(program=server_program(), directory=directory / "valkey", port=free_port(), password=secrets.token_urlsafe(16))
    process = Process("store", store.argv(), env=env, directory=directory)
    try:
        until(lambda: _answers(store.url, process))
        yield store.url
    finally:
        process.end()


def _answers(url: str, process: Process) -> bool:
    process.require()
    with redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1) as connection:
        try:
            return bool(connection.ping())
        except redis.RedisError:
            return False


@contextmanager
def _database(server: str) -> Iterator[dict[str, str]]:
    if not server:
        yield {}
        return
    name = f"trinity_bench_{secrets.token_hex(6)}"
    _on_server(server, f"CREATE DATABASE {name}")
    try:
        yield {"DATABASE_URL": urlunsplit(urlsplit(server)._replace(path=f"/{name}"))}
    finally:
        _on_server(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _on_server(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[arg-type]


def until(predicate: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Return once `predicate` holds; `TimeoutError` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.01)


def python(*arguments: str) -> list[str]:
    """The command line of a Python of ours."""
    return [sys.executable, *arguments]
