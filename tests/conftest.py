"""The fixtures that all tests share; there is no second family of any."""

import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import django
import pytest
import redis
from django.conf import settings

if settings.configured:
    raise pytest.UsageError("Unset DJANGO_SETTINGS_MODULE: the tests configure Django themselves, with stores of their own.")

from core.tether import tethered
from tests import environment
from tests.agents.server import AgentServer

# A real one takes half a second for each person that a test makes.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Else each client of a test would look through all static files anew: a fourteenth of a second.
settings.WHITENOISE_AUTOREFRESH = True
django.setup()

from django.contrib.auth.models import User
from django.contrib.contenttypes.management import create_contenttypes
from django.db import connection, connections
from django.db.models.signals import post_migrate
from django.test import Client
from playwright.sync_api import BrowserType, Page
from pytest_django import DjangoDbBlocker
from rest_framework.test import APIClient

from backlog.models import Execution
from capacity.manager import CapacityManager
from core.embedded_store import free_port
from core.redis import client as redis_client
from fleet import tokens
from fleet.models import Agent
from runtime import dispatch
from tests import ageing, chromium, contract, waiting
from tests.stack import Stack

contract.listen()

TIERS = ("flows", "browser", "chaos")
#: Keys that stay: those of the slots that describe who holds one and the counters (capacity/keys.py), and Celery's queues.
PERMANENT = ("agent:slots:", "agent:holders:", "agent:leases", "agent:versions", "agent:epoch", "trinity:repairs", "celery:")


def pytest_configure(config: pytest.Config) -> None:
    """xdist's workers inherit this process's environment: they must set theirs before Django is configured."""
    if not hasattr(config, "workerinput"):
        os.environ.pop("DJANGO_SETTINGS_MODULE")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where all programs are installed on purpose, a skipped test is a test that fails."""
    contract.write_down()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier: what it says itself, or by its directory flows, browser, chaos, or else fast."""
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            names = {parent.name for parent in item.path.parents}
            item.add_marker(next((tier for tier in TIERS if tier in names), "fast"))


@pytest.fixture(autouse=True)
def answers_as_documented() -> Iterator[None]:
    """Whatever the API answered in this test is in its contract."""
    yield
    found, contract.faults = contract.faults, []
    assert found == []


# -- Stores ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def store_server() -> Iterator[str]:
    """This process's slot store, running; its address."""
    if environment.STORE is None:
        yield os.environ["REDIS_URL"]
        return
    log = (environment.DATA_DIR / "valkey.log").open("wb")
    process = subprocess.Popen(tethered(environment.STORE.argv()), stdout=log, stderr=log)
    waiting.until(lambda: process.poll() is not None or _answers(environment.STORE.url))
    assert process.poll() is None, (environment.DATA_DIR / "valkey.log").read_text()
    yield environment.STORE.url
    process.terminate()
    process.wait()
    log.close()


def _answers(url: str) -> bool:
    with redis.Redis.from_url(url) as connection:
        try:
            return bool(connection.ping())
        except redis.RedisError:
            return False


@pytest.fixture
def valkey(store_server: str) -> Iterator[redis.Redis]:
    """The slot store, empty: a real server of this test process."""
    client = redis_client()
    client.flushdb()
    dispatch.broker.recovered()  # a test that took the store away may have been the last one
    yield client
    leaked = [key.decode() for key in client.keys("*") if client.ttl(key) == -1 and not key.decode().startswith(PERMANENT)]
    client.flushdb()
    assert leaked == [], "keys that nothing will ever remove"


@pytest.fixture
def store_out_of_reach(valkey: redis.Redis) -> Iterator[Callable[[bool], None]]:
    """Cuts this process's client off the slot store (`(True)`) and lets it come back (`(False)`)."""
    pool = redis_client().connection_pool
    port = pool.connection_kwargs["port"]

    def cut(away: bool) -> None:
        pool.connection_kwargs["port"] = free_port() if away else port
        pool.disconnect()
        pool.reset()  # else it keeps connections that know their port

    yield cut
    cut(False)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database; before it goes, connections that threads of the tests left open go.

    Emptied after a test, it gets its one row of settings again, but not Django's content types and permissions, which nobody
    reads here: they would take a tenth of a second each time.
    """
    post_migrate.disconnect(create_contenttypes)
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    yield
    with django_db_blocker.unblock():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(_OTHERS)
        connections.close_all()


_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


# -- People and agents -----------------------------------------------------------------------------------------------
@pytest.fixture
def owner(db: None) -> User:
    """A person who owns `agent`."""
    return User.objects.create_user("olga", password="olga-password")


@pytest.fixture
def stranger(db: None) -> User:
    """A person with no right on any agent."""
    return User.objects.create_user("sten", password="sten-password")


@pytest.fixture
def superuser(db: None) -> User:
    """A person who may everything."""
    return User.objects.create_superuser("root", password="root-password")


@pytest.fixture
def make_agent(owner: User) -> Callable[..., Agent]:
    """Makes agents: `make_agent(limit=, depth=, runtime=, owner=, name=, **columns)`; `runtime` as in the API."""
    numbers = count(1)

    def make(
        *,
        limit: int = 3,
        depth: int = 50,
        runtime: dict[str, Any] | None = None,
        owner: User = owner,
        name: str | None = None,
        **columns: Any,
    ) -> Agent:
        kind = {"kind": "command", "argv": ["cat"]} | (runtime or {})
        return Agent.objects.create(
            name=name or f"agent-{next(numbers)}",
            owner=owner,
            max_parallel_tasks=limit,
            max_backlog_depth=depth,
            runtime_kind=kind["kind"],
            runtime={key: value for key, value in (runtime or kind).items() if key != "kind"},
            **columns,
        )

    return make


@pytest.fixture
def agent(make_agent: Callable[..., Agent]) -> Agent:
    """An agent with three slots that answers with the message it was sent."""
    return make_agent(limit=3)


@pytest.fixture
def agent_server() -> Iterator[AgentServer]:
    """A real HTTP agent with a ledger of its own; `tests/agents/server.py` lists the words that it obeys."""
    with AgentServer() as server:
        yield server


@pytest.fixture
def api(db: None, valkey: redis.Redis) -> Callable[[User | str | None], APIClient]:
    """Makes API clients: `api(user)` with a token of theirs, `api("trinity_…")` with a key, `api(None)` with neither."""

    def make(principal: User | str | None) -> APIClient:
        client = APIClient(raise_request_exception=False)
        bearer = principal if principal is None or isinstance(principal, str) else tokens.issue(principal).access
        if bearer is not None:
            client.credentials(HTTP_AUTHORIZATION=f"Bearer {bearer}")
        return client

    return make


# -- Time ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def until(record_property: Callable[[str, object], None]) -> Callable[..., Any]:
    """`until(predicate, seconds=10)`: waits for a truthy value and returns it; the wait is recorded."""

    def wait(predicate: Callable[[], Any], seconds: float = waiting.SECONDS) -> Any:
        started = waiting.now()
        value = waiting.until(predicate, seconds)
        record_property("lag_seconds", round(waiting.now() - started, 3))
        return value

    return wait


@pytest.fixture
def age_row() -> Callable[[Execution, float], Execution]:
    """`age_row(execution, seconds)`: the row as it would stand after `seconds` more; returns it fresh."""
    return ageing.age_row


@pytest.fixture
def age_slot(valkey: redis.Redis) -> Callable[[str, object, float], None]:
    """`age_slot(name, execution_id, seconds)`: the agent's slot as it would stand after `seconds` more."""
    return partial(ageing.age_slot, valkey)


@pytest.fixture
def signed_in(valkey: redis.Redis) -> Callable[[User], Client]:
    """Makes browsers in which a user is signed in; the slot store is open."""
    CapacityManager().rebuild()

    def make(user: User) -> Client:
        client = Client(raise_request_exception=False)
        client.force_login(user)
        return client

    return make


# -- Whole systems ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def _stack() -> Iterator[Stack]:
    stack = Stack(environment.temporary_directory())
    yield stack
    stack.close()


@pytest.fixture
def stack(_stack: Stack) -> Stack:
    """Store, web and a worker as processes, whole at the start of each test."""
    _stack.ensure_whole()
    return _stack


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type: BrowserType, browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """What Chromium is started with."""
    program = chromium.chromium(browser_type.executable_path)
    if program is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(chromium.HOW_TO_GET_ONE)
    return browser_type_launch_args | {"executable_path": program, "args": chromium.ARGUMENTS}


@pytest.fixture
def console_errors() -> list[str]:
    """What the page complained of; a test that provokes a complaint looks at it and clears it."""
    return []


@pytest.fixture
def page(page: Page, console_errors: list[str]) -> Iterator[Page]:
    """A page of a real Chromium; a complaint on its console fails the test."""
    page.on("console", lambda message: console_errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: console_errors.append(str(error)))
    yield page
    assert console_errors == []
