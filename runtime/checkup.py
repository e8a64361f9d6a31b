"""Whether what is accepted is also carried: the broker, the workers, and threads enough for all slots."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from celery import Celery, current_app
from django.db import Error, connection
from kombu.connection import Connection
from kombu.exceptions import OperationalError

from capacity.checkup import check_slot_store
from core.checkup import Check
from core.checkup.configuration import check_configuration
from core.checkup.database import check_database
from core.checkup.findings import ANSWER_SECONDS, Finding, fail, ok, one_line, warn
from core.checkup.libraries import check_libraries
from core.redis import RedisError
from fleet.selectors import effective_limit, fleet_settings, living_agents

from . import heartbeat

START = "celery -A trinity worker -P threads -c 32 -Q trinity, or manage.py up"


def checks() -> dict[str, Check]:
    """All of them, by the name of what they look at."""
    return {
        "libraries": check_libraries,
        "configuration": check_configuration,
        "database": check_database,
        "slot store": check_slot_store,
        "broker": check_broker,
        "workers": check_workers,
    }


# -- The broker --------------------------------------------------------------------------------------------------------


def check_broker(app: Celery | None = None) -> Iterator[Finding]:
    """Whether it takes messages, and how many workers listen to it."""
    app = app or current_app
    with app.connection_for_write() as broker:
        place = _place(broker)
        try:
            broker.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=ANSWER_SECONDS)
            broker.channel().close()  # with Redis the first thing that is sent
            yield ok("broker", place)
            yield _listeners(app, broker)
        except (OperationalError, OSError, *broker.connection_errors, *broker.channel_errors) as error:
            yield fail("broker", f"{place} is out of reach: {one_line(error)}", "Start it, or set CELERY_BROKER_URL to where it is")


def _place(broker: Connection) -> str:
    """Where it is, without the password."""
    parts = urlsplit(broker.as_uri())
    return f"{parts.scheme}://{parts.hostname}:{parts.port}" if parts.hostname else broker.as_uri()


def _listeners(app: Celery, broker: Connection) -> Finding:
    """Workers alive beside those that hear the broker: one that is deaf carries only what it has."""
    heard = len(app.control.ping(timeout=1.0, connection=broker))
    try:
        alive = len(heartbeat.living())
    except RedisError:
        alive = heard
    if heard < alive:
        return warn("broker listeners", f"{heard} of {alive} workers answered within 1 s", "Restart those that stay silent")
    return ok("broker listeners", f"{heard} workers answered")


# -- Workers -----------------------------------------------------------------------------------------------------------


def check_workers() -> Iterator[Finding]:
    """Who is alive, and whether they have a thread for each slot."""
    try:
        workers = heartbeat.living()
    except RedisError as error:
        yield warn("workers", f"They can't be seen: {one_line(error)}", "Mend the slot store first")
        return
    threads = sum(worker.threads for worker in workers)
    if workers:
        yield ok("workers", f"{len(workers)} on {len({worker.host for worker in workers})} hosts, {threads} threads")
    else:
        yield fail("workers", "None is alive: nothing starts", START)
    try:
        yield _threads(threads)
    except Error:
        yield warn("threads", "The agents' limits can't be read", "Mend the database first")
    finally:
        connection.close()


def _threads(threads: int) -> Finding:
    fleet = fleet_settings()
    slots = sum(effective_limit(agent, fleet.max_parallel_tasks_ceiling) for agent in living_agents().only("max_parallel_tasks"))
    if fleet.max_concurrent_tasks is not None:
        slots = min(slots, fleet.max_concurrent_tasks)
    seen = f"{threads} for {slots} slots"
    if slots <= threads:
        return ok("threads", seen)
    mend = f"Start more workers, raise TRINITY_WORKER_THREADS (-c), or lower limits: {slots - threads} more threads are needed"
    return warn("threads", f"{seen}: granted work may wait for a thread while it holds its slot", mend)
