"""`manage.py up`: all of Trinity in one foreground command."""

import argparse
import fcntl
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import redis
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from core.data_dir import data_dir, redis_url_file
from core.embedded_store import EmbeddedStore, StoreServerMissing, free_port, store_of_data_dir
from core.process_tree import ProcessTree
from runtime.local import Local, child_environment

READY_SECONDS = 60


class Command(BaseCommand):
    """Starts the slot store, web and workers, keeps them running, and ends them all."""

    help = "Run all of Trinity in the foreground: slot store, web, workers and, unless --no-demo, agents with some work to do."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own type

    def add_arguments(self, parser: CommandParser) -> None:
        """Where, how many, and whether with a demo."""
        parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: %(default)s)")
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--data-dir", help="where everything is kept (default: TRINITY_DATA_DIR, else ./var)")
        parser.add_argument("--demo", action=argparse.BooleanOptionalAction, default=True, help="make demo agents and keep them at work")
        parser.add_argument("--workers", type=int, default=1, metavar="N", help="worker processes (default: %(default)s)")

    def handle(self, *, host: str, port: int, workers: int, demo: bool, **options: Any) -> None:
        """Run until Ctrl-C or SIGTERM."""
        _settle(options["data_dir"])
        _require_free(host, port)
        with _alone():
            store = _own_store()
            url = store.url if store else os.environ["REDIS_URL"]
            env = child_environment(data_dir=data_dir(), redis_url=url, code=Path(settings.BASE_DIR))
            local = Local(host=host, port=port, env=env)
            tree = ProcessTree(log_dir=data_dir() / "logs", terminal=sys.stdout, grace_seconds=local.grace_seconds)
            with _announced(store), tree.until_signalled():
                _start(tree, local, store=store, workers=workers, demo=demo)
                tree.run_forever()


def _settle(wanted: str | None) -> None:
    """Begin again with `--data-dir` in the environment, where the settings were read from another one."""
    if wanted is not None and data_dir() != Path(wanted).expanduser().absolute():
        os.environ["TRINITY_DATA_DIR"] = str(Path(wanted).expanduser().absolute())
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - no shell, our own command line


def _require_free(host: str, port: int) -> None:
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return
    except (OSError, OverflowError) as error:
        # Python adds to the system's words which address it tried.
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise CommandError(f"Can't listen on {host}:{port} ({reason}): choose another with --port (make run PORT=…)") from error


@contextmanager
def _alone() -> Iterator[None]:
    """Two of us in one data directory would take turns in naming the store that others should use."""
    with (data_dir() / "up.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(f"Trinity is up already in {data_dir()}: stop it, or choose another --data-dir") from error
        yield


def _own_store() -> EmbeddedStore | None:
    if os.environ.get("REDIS_URL"):
        return None
    try:
        return store_of_data_dir()
    except StoreServerMissing as error:
        raise CommandError(str(error)) from error


@contextmanager
def _announced(store: EmbeddedStore | None) -> Iterator[None]:
    """Other commands of this data directory find the store by its address in a file, for as long as it runs."""
    if store is None:
        yield
        return
    file = redis_url_file()
    file.touch(mode=0o600)
    file.write_text(store.url)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _start(tree: ProcessTree, local: Local, *, store: EmbeddedStore | None, workers: int, demo: bool) -> None:
    if store:
        tree.start(local.store(store))
    if not tree.run_until(lambda: _store_answers(local.env["REDIS_URL"]), seconds=10):
        raise CommandError("The slot store does not answer: see logs/store.log in the data directory, or REDIS_URL")
    news = _prepare(tree, local, demo_port=free_port() if demo else None)
    tree.start(local.web())
    for number in range(1, workers + 1):
        tree.start(local.worker(number))
    if not tree.run_until(lambda: _ready(local.url), seconds=READY_SECONDS):
        raise CommandError(f"Not ready after {READY_SECONDS} s: see the logs in {data_dir() / 'logs'}")
    if demo:
        tree.start(local.module("load", "runtime.demo.load", "--url", local.url))
    for line in (f"Trinity is up: {local.url}/   Ctrl-C stops all of it.", *news):
        tree.say(line)


def _prepare(tree: ProcessTree, local: Local, *, demo_port: int | None) -> list[str]:
    """Migrate, make what a first start needs, start the demo's agent server; what the owner should be told."""
    demo = [f"--demo-port={demo_port}"] if demo_port else []
    code, said = tree.run_once(local.prepare(*demo))
    if code:
        raise CommandError("\n".join(["The first step, `prepare`, failed:", *said]))
    if demo_port:
        tree.start(local.module("agents", "runtime.demo.server", "--port", str(demo_port)))
    return said


def _store_answers(url: str) -> bool:
    with redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1) as connection:
        try:
            return bool(connection.ping())
        except redis.RedisError:
            return False


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=1, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
