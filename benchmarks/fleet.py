"""Agents that sleep, their tasks, and the worker that carries them; Django is set up when this is imported."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.contrib.auth.models import User

from capacity.manager import CapacityManager
from fleet.models import Agent, FleetSettings, OnFull
from fleet.principals import Principal
from runtime.services.submit import Submitted, TaskRequest, submit_task

from . import marks
from .ground import Process, python, until

KIND = "sleep"
DEPTH = 10_000
LONGEST_SECONDS = 300.0


def directory() -> Path:
    """The ground's data directory."""
    return Path(os.environ["TRINITY_DATA_DIR"])


def owner() -> User:
    """The one person of the ground."""
    return User.objects.filter(username="bench").first() or User.objects.create_superuser("bench", password=secrets.token_hex(8))


def open_gate(*, ceiling: int = 32) -> None:
    """Let slots be granted on the fresh store, up to `ceiling` an agent."""
    CapacityManager().refill()
    FleetSettings.objects.update(max_parallel_tasks_ceiling=ceiling)


def make_agent(*, slots: int) -> Agent:
    """An agent whose tasks sleep."""
    return Agent.objects.create(
        name=f"bench-{secrets.token_hex(4)}", owner=owner(), runtime_kind=KIND, max_parallel_tasks=slots, max_backlog_depth=DEPTH
    )


def submit(agent: Agent, message: str) -> Submitted:
    """A task by the front door, short of HTTP."""
    request = TaskRequest(message=message, on_full=OnFull.QUEUE)
    return submit_task(principal=Principal.of_user(agent.owner), name=agent.name, request=request)


@contextmanager
def running(name: str, argv: list[str]) -> Iterator[Process]:
    """A process, from its `ready.` on."""
    process = Process(name, argv, env=os.environ, directory=directory())
    try:
        until(lambda: process.said("ready."))
        yield process
    finally:
        process.end()


def worker(*, threads: int = 32) -> list[str]:
    """The command line of a worker as `up` starts it, with the runtime that sleeps."""
    options = ["-P", "threads", "-c", str(threads), "-Q", "trinity", "--loglevel", "INFO"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    return python("-m", "celery", "-A", "benchmarks.worker", "worker", *options, *quiet)


class Hold:
    """A file that tasks wait for: what is queued behind them starts all at once, and submitting isn't measured."""

    def __init__(self) -> None:
        """Not there yet."""
        self._path = directory() / f"go-{secrets.token_hex(4)}"
        self.label = f"hold-{secrets.token_hex(4)}"

    @property
    def message(self) -> str:
        """The task that waits."""
        return f"hold {self.label} {self._path}"

    def let_go(self) -> None:
        """Let them end."""
        self._path.touch()


def marked(label: str, count: int) -> list[marks.Mark]:
    """All `count` marks of a label, once they are there."""
    until(lambda: len(marks.of(label)) >= count, LONGEST_SECONDS)
    return marks.of(label)


def slots_line(*, agent: Agent, slots: int, tasks: int, seconds: float) -> list[marks.Mark]:
    """The marks of `tasks` sleeps that stood in line before the first one began."""
    hold, label = Hold(), f"sleep-{secrets.token_hex(4)}"
    for _ in range(slots):
        submit(agent, hold.message)
    for _ in range(tasks):
        submit(agent, f"sleep {label} {seconds}")
    hold.let_go()
    return marked(label, tasks)
