"""The slot store and the broker, each behind a network that fails: nothing is refused unclean, and no run is ended for it."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, execution, holders, statuses, submit, unsettled
from tests.proxy import Proxy
from tests.stack import Stack, StackProcess
from tests.stores import OwnStore

Until = Callable[..., Any]
#: Two tries of a command, each of at most a second to connect and two for the answer, and what the rest of a request takes.
REFUSED_SECONDS = 12.0


@dataclass(frozen=True)
class Ways:
    """The ways of a stack to its slot store and to its broker."""

    stack: Stack
    gate: Proxy
    broker: Proxy


@pytest.fixture(scope="module")
def _ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    gate_store, broker_store = (OwnStore(tmp_path_factory.mktemp(name)) for name in ("gate", "broker"))
    gate_store.start()
    broker_store.start()
    with Proxy(port_of(gate_store.url)) as gate, Proxy(port_of(broker_store.url)) as broker:
        stack = Stack(
            tmp_path_factory.mktemp("stack"), REDIS_URL=gate.through(gate_store.url), CELERY_BROKER_URL=broker.through(broker_store.url),
            TRINITY_BROKER_SILENCE_SECONDS="6",
        )  # fmt: skip
        stack.redis.close()
        stack.redis = gate_store.client()
        yield Ways(stack, gate, broker)
        stack.close()
    gate_store.kill()
    broker_store.kill()


@pytest.fixture
def ways(_ways: Ways) -> Iterator[Ways]:
    """A whole stack whose stores can be cut off; they are in reach again when the test ends."""
    _ways.stack.ensure_whole()
    yield _ways
    _ways.gate.resume()
    _ways.broker.resume()


def port_of(url: str) -> int:
    """The port in an address."""
    port = urlsplit(url).port
    assert port is not None
    return port


def fail(proxy: Proxy, how: str) -> None:
    """Let the way fail."""
    proxy.stop() if how == "gone" else proxy.hang()


def timed(call: Callable[[], httpx.Response]) -> tuple[httpx.Response, float]:
    """The answer, and after how many seconds."""
    began = time.monotonic()
    return call(), time.monotonic() - began


def open_gate(ways: Ways, agent: str, until: Until) -> None:
    """Wait until the agent's slots can be read again."""
    until(lambda: ways.stack.api(ways.stack.superuser_key).get(f"/api/agents/{agent}/capacity").status_code == httpx.codes.OK, 20)


@pytest.mark.parametrize("how", ["gone", "hanging"])
def test_a_submit_without_the_store_is_a_clean_503_and_its_key_is_free_again(
    ways: Ways, agent_server: AgentServer, until: Until, how: str
) -> None:
    stack, api = ways.stack, ways.stack.api()
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    key = {"Idempotency-Key": uuid.uuid4().hex}

    def post() -> httpx.Response:
        return api.post(f"/api/agents/{agent}/task", json={"message": "once", "async_mode": True}, headers=key)

    fail(ways.gate, how)
    refused, seconds = timed(post)
    assert (refused.status_code, refused.json()["code"]) == (503, "slots_unavailable")
    assert int(refused.headers["Retry-After"]) >= 1
    assert seconds < REFUSED_SECONDS
    assert statuses(stack, agent) == {}
    ways.gate.resume()
    open_gate(ways, agent, until)
    accepted = post()
    assert accepted.status_code == httpx.codes.ACCEPTED, accepted.text
    until(lambda: all_ended(api, [accepted.json()["execution_id"]]), 30)
    assert agent_server.started == [accepted.json()["execution_id"]]


@pytest.mark.parametrize("how", ["gone", "hanging"])
def test_without_the_store_load_is_unknown_and_never_nought(ways: Ways, agent_server: AgentServer, until: Until, how: str) -> None:
    stack, api = ways.stack, ways.stack.api()
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    running = submit(api, agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1)
    fail(ways.gate, how)
    for path in (f"/api/agents/{agent}/capacity", "/api/agents/slots", f"/api/agents/{agent}/queue", f"/api/agents/{agent}/", "/readyz"):
        answer, seconds = timed(lambda path=path: api.get(path))  # type: ignore[misc]
        assert seconds < REFUSED_SECONDS, path
        assert answer.status_code in (200, 503), (path, answer.text)
        if answer.status_code == httpx.codes.OK:
            assert '"active":0' not in answer.text.replace(" ", ""), (path, answer.text)
            assert '"active_slots":0' not in answer.text.replace(" ", ""), (path, answer.text)
        else:
            assert int(answer.headers["Retry-After"]) >= 1, path
    assert api.get(f"/api/agents/{agent}/capacity").status_code == httpx.codes.SERVICE_UNAVAILABLE
    # What the rows know is told all the same.
    assert execution(api, running)["status"] == "running"
    ways.gate.resume()
    open_gate(ways, agent, until)
    assert agent_server.active == 1
    agent_server.let_go()
    until(lambda: all_ended(api, [running]), 30)
    assert execution(api, running)["status"] == "success"


def test_a_slow_store_slows_and_refuses_nobody(ways: Ways, agent_server: AgentServer, until: Until) -> None:
    stack, api = ways.stack, ways.stack.api()
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    ways.gate.slow(150)
    ids = [submit(api, agent, f"slowly {number}")["execution_id"] for number in range(5)]
    until(lambda: all_ended(api, ids), 60)
    assert statuses(stack, agent) == {"success": 5}
    assert agent_server.peak <= 2
    assert Counter(agent_server.started) == dict.fromkeys(ids, 1)


def test_twenty_runs_outlive_a_store_that_is_away_for_three_leases(ways: Ways, agent_server: AgentServer, until: Until) -> None:
    stack, api = ways.stack, ways.stack.api(ways.stack.superuser_key)
    lease = float(stack.env["TRINITY_LEASE_SECONDS"])
    over = stack.directory / f"over-{uuid.uuid4().hex}"
    argv = ["sh", "-c", 'while [ ! -e "$OVER" ]; do sleep 0.2; done; echo ended']
    http = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=10, key=stack.superuser_key)
    command = stack.make_agent(runtime={"kind": "command", "argv": argv, "env": {"OVER": str(over)}}, limit=10)
    ids = [submit(api, agent, "hang")["execution_id"] for agent in (http, command) for _ in range(10)]
    until(lambda: sum(execution(api, one)["started_at"] is not None for one in ids) == 20 and agent_server.active == 10, 30)

    ways.gate.hang()
    time.sleep(1.5 * lease)
    ways.gate.stop()
    time.sleep(1.5 * lease)
    ways.gate.resume()
    open_gate(ways, http, until)
    time.sleep(3)  # the reconciler has looked, more than once

    assert agent_server.active == 10
    assert holders(stack, http) == holders(stack, command) == 10
    agent_server.let_go()
    over.touch()
    until(lambda: all_ended(api, ids), 30)
    assert statuses(stack, http) == statuses(stack, command) == {"success": 10}
    until(lambda: unsettled(stack, http) == unsettled(stack, command) == 0 == holders(stack, http), 30)


def test_a_deaf_worker_lets_its_run_end_takes_no_new_work_and_leaves(ways: Ways, agent_server: AgentServer, until: Until) -> None:
    stack, api = ways.stack, ways.stack.api()
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=3)
    running = submit(api, agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1)
    deaf = stack.workers[0]

    ways.broker.hang()
    until(lambda: deaf.said("worker.out_of_touch"), 30)
    ways.broker.resume()
    # In reach again, it stays out of service; another one takes what comes, and its own run ends in its own time.
    other = stack.start_worker()
    ids = [submit(api, agent, f"late {number}")["execution_id"] for number in range(4)]
    until(lambda: all_ended(api, ids), 30)
    assert deaf.running
    assert execution(api, running)["status"] == "running"
    agent_server.let_go()
    until(lambda: all_ended(api, [running]), 30)
    until(lambda: not deaf.running, 30)
    stack.stop_worker(deaf)
    assert deaf.process.returncode == 0
    assert execution(api, running)["status"] == "success"
    assert Counter(agent_server.started) == dict.fromkeys([running, *ids], 1)
    assert "worker.out_of_touch" not in said(other)


def said(worker: StackProcess) -> str:
    """All it has said."""
    return worker.log.read_text(errors="replace")


def test_a_worker_whose_threads_all_have_work_is_not_taken_for_deaf(ways: Ways, agent_server: AgentServer, until: Until) -> None:
    stack, api = ways.stack, ways.stack.api()
    while stack.workers:
        stack.stop_worker()
    worker = stack.start_worker(threads=1)
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    running = submit(api, agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1)
    time.sleep(2 * float(stack.env["TRINITY_BROKER_SILENCE_SECONDS"]))
    assert worker.running
    assert "worker.out_of_touch" not in said(worker)
    agent_server.let_go()
    until(lambda: all_ended(api, [running]), 30)
    stack.stop_worker(worker)
