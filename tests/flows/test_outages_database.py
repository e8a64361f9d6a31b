"""The database gone, silent or locked while work goes on: it goes on, its results wait, and newcomers are refused clean."""

import os
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests import contract, postgres
from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, execution, holders, statuses, submit, unsettled
from tests.postgres import PostgresServer
from tests.proxy import Proxy
from tests.stack import Stack

Until = Callable[..., Any]
PATIENCE = {"TRINITY_DATABASE_TIMEOUT_SECONDS": "3"}
#: A connection from the pool, its answer, and what the rest of a request takes.
REFUSED_SECONDS = 15.0


@pytest.fixture(scope="module")
def way() -> Iterator[Proxy]:
    """The way to a PostgreSQL server."""
    if postgres.programs() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(postgres.HOW_TO_GET_ONE)
    server = PostgresServer()
    server.start()
    with Proxy(server.port) as way:
        yield way
    server.close()


@pytest.fixture(scope="module")
def on_postgresql(way: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack on that server."""
    url = f"postgres://trinity@127.0.0.1:{way.port}/postgres"
    stack = Stack(tmp_path_factory.mktemp("postgresql"), database_server=url, **PATIENCE)
    yield stack
    way.resume()
    stack.close()


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack on a file."""
    stack = Stack(tmp_path_factory.mktemp("sqlite"), database_server="", **PATIENCE)
    yield stack
    stack.close()


def begin_runs(stack: Stack, agent_server: AgentServer, until: Until, over: str) -> dict[str, list[str]]:
    """Ten runs of two agents, under way: `{agent: ids}`; those of the second end when the file `over` is there."""
    api = stack.api(stack.superuser_key)
    argv = ["sh", "-c", 'while [ ! -e "$OVER" ]; do sleep 0.2; done; echo ended']
    agents = [
        stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=5, key=stack.superuser_key),
        stack.make_agent(runtime={"kind": "command", "argv": argv, "env": {"OVER": over}}, limit=5),
    ]
    runs = {agent: [submit(api, agent, "hang")["execution_id"] for _ in range(5)] for agent in agents}
    until(lambda: all(execution(api, one)["started_at"] for ids in runs.values() for one in ids) and agent_server.active == 5, 30)
    return runs


def assert_refused(stack: Stack, agent: str) -> None:
    """A submit is a clean 503, in time; the process is alive and says that it isn't ready."""
    api, key = stack.api(stack.superuser_key), {"Idempotency-Key": uuid.uuid4().hex}
    began = time.monotonic()
    answer = api.post(f"/api/agents/{agent}/task", json={"message": "late", "async_mode": True}, headers=key)
    assert time.monotonic() - began < REFUSED_SECONDS
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
    assert int(answer.headers["Retry-After"]) >= 1
    assert api.get("/livez").status_code == httpx.codes.OK


def assert_all_ended_well(stack: Stack, agent_server: AgentServer, until: Until, runs: dict[str, list[str]]) -> None:
    """Each of the runs succeeded, once, and gave its slot back."""
    api = stack.api(stack.superuser_key)
    until(lambda: all_ended(api, [one for ids in runs.values() for one in ids]), 60)
    for agent in runs:
        assert statuses(stack, agent) == {"success": 5}
    assert set(Counter(agent_server.started).values()) == {1}
    until(lambda: sum(unsettled(stack, agent) + holders(stack, agent) for agent in runs) == 0, 30)
    assert stack.workers[0].running


@pytest.mark.parametrize("how", ["gone", "silent"])
def test_runs_outlive_a_postgresql_server_that_is_away_for_longer_than_a_lease(
    on_postgresql: Stack, way: Proxy, agent_server: AgentServer, until: Until, how: str
) -> None:
    stack = on_postgresql
    over = stack.directory / f"over-{uuid.uuid4().hex}"
    runs = begin_runs(stack, agent_server, until, str(over))
    way.stop() if how == "gone" else way.hang()
    try:
        began = time.monotonic()
        assert_refused(stack, next(iter(runs)))
        assert stack.api().get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE
        time.sleep(max(0.0, 1.5 * float(stack.env["TRINITY_LEASE_SECONDS"]) - (time.monotonic() - began)))
        assert agent_server.active == 5
        # Their results have to wait.
        agent_server.let_go()
        over.touch()
        until(lambda: agent_server.active == 0)
        assert [holders(stack, agent) for agent in runs] == [5, 5]
    finally:
        way.resume()
    # Not as long again as it was away.
    until(lambda: stack.api().get("/readyz").status_code == httpx.codes.OK)
    assert_all_ended_well(stack, agent_server, until, runs)


def test_runs_outlive_an_sqlite_file_that_another_process_sits_on(on_sqlite: Stack, agent_server: AgentServer, until: Until) -> None:
    stack = on_sqlite
    over = stack.directory / f"over-{uuid.uuid4().hex}"
    runs = begin_runs(stack, agent_server, until, str(over))
    with closing(sqlite3.connect(stack.directory / "db.sqlite3", isolation_level=None)) as sitter:
        sitter.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert_refused(stack, next(iter(runs)))
        agent_server.let_go()
        over.touch()
        time.sleep(max(0.0, 1.5 * float(stack.env["TRINITY_LEASE_SECONDS"]) - (time.monotonic() - began)))
        assert [holders(stack, agent) for agent in runs] == [5, 5]
        sitter.execute("ROLLBACK")
    assert_all_ended_well(stack, agent_server, until, runs)


def test_without_its_database_every_operation_is_a_503(on_postgresql: Stack, way: Proxy) -> None:
    asked = [(method, contract.filled(path, found)) for method, path, found in contract.operations()]
    bodies = {"/api/token/": {"username": "olga", "password": "p"}, "/api/token/refresh/": {"refresh": refresh_token(on_postgresql)}}
    bodies |= {"/api/public/chat/unknown": {"message": "hello"}}
    way.stop()
    try:
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(lambda one: _answer(on_postgresql, *one, body=bodies.get(one[1], {})), asked))
    finally:
        way.resume()
    assert len(asked) > 40
    assert [told for told in answers if not told.endswith("503 unavailable")] == []


def refresh_token(stack: Stack) -> str:
    """One that is good."""
    pair = stack.api("").post("/api/token/", json={"username": "olga", "password": "olga-password"})
    return str(pair.json()["refresh"])


def _answer(stack: Stack, method: str, path: str, *, body: dict[str, Any]) -> str:
    with httpx.Client(base_url=stack.url, headers={"Authorization": f"Bearer {stack.superuser_key}"}, trust_env=False) as api:
        if path.startswith(("/api/token", "/api/public")):
            del api.headers["Authorization"]
        answer = api.request(method.upper(), path, timeout=90, json=None if method in {"get", "delete"} else body)
    return f"{method} {path}: {answer.status_code} {answer.json()['code']}"
