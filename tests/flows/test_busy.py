"""Workers whose threads all carry long runs: housekeeping goes on beside them, and no message waits at them."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, execution, holders, submit
from tests.stack import Stack, StackProcess

Until = Callable[..., Any]


@pytest.fixture
def busy(stack: Stack, agent_server: AgentServer, until: Until) -> Iterator[StackProcess]:
    """The stack's only worker, of two threads, both of which carry a run that does not end."""
    worker = stack.start_worker(threads=2)
    for other in [one for one in stack.workers if one is not worker]:
        stack.stop_worker(other)
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.at("long").url}, limit=2)
    ids = [submit(stack.api(), agent, "hang")["execution_id"] for _ in range(2)]
    until(lambda: agent_server.at("long").active == 2)
    yield worker
    agent_server.let_go()
    until(lambda: all_ended(stack.api(), ids), 30)
    stack.stop_worker(worker)


def test_the_sweep_and_the_reconciler_work_beside_runs_that_take_every_thread(
    stack: Stack, busy: StackProcess, agent_server: AgentServer, until: Until
) -> None:
    api = stack.api()
    dying = stack.start_worker()
    lost = stack.make_agent(runtime={"kind": "http", "url": agent_server.at("lost").url}, limit=1)
    running = submit(api, lost, "hang")["execution_id"]
    until(lambda: agent_server.at("lost").active == 1 and execution(api, running)["started_at"])
    stack.kill_worker(dying)

    # A line that nobody drained: its pause ended without a word.
    waiting = stack.make_agent(runtime={"kind": "http", "url": agent_server.at("waiting").url}, limit=1)
    stack.sql("UPDATE fleet_agent SET paused = %s WHERE name = %s", True, waiting)
    row = submit(api, waiting, "soon")
    assert row["status"] == "queued"
    stack.sql("UPDATE fleet_agent SET paused = %s WHERE name = %s", False, waiting)
    until(lambda: holders(stack, waiting) == 1)
    assert execution(api, row["execution_id"])["waiting_for"] == "worker"

    until(lambda: execution(api, running)["status"] == "failed", float(stack.env["TRINITY_LEASE_SECONDS"]) + 10)
    assert execution(api, running)["error_code"] == "worker_lost"
    assert agent_server.at("long").active == 2


def test_schedules_fire_on_time_beside_runs_that_take_every_thread(
    stack: Stack, busy: StackProcess, agent_server: AgentServer, until: Until
) -> None:
    api = stack.api()
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.at("scheduled").url}, limit=1)
    made = api.post(f"/api/agents/{agent}/schedules/", json={"name": "often", "message": "soon", "interval_seconds": 10}).json()
    path = f"/api/agents/{agent}/schedules/{made['id']}/"
    assert made["last_firing"] is None
    first = until(lambda: api.get(path).json()["last_firing"], 20)
    assert first["due_at"] == made["next_run_at"]
    until(lambda: api.get(path).json()["last_firing"]["outcome"] == "submitted")
    fired = execution(api, api.get(path).json()["last_firing"]["execution_id"])
    late = datetime.fromisoformat(fired["created_at"]) - datetime.fromisoformat(first["due_at"])
    assert timedelta() <= late < timedelta(seconds=5)
    assert (fired["status"], fired["waiting_for"]) == ("running", "worker")
    assert agent_server.at("long").active == 2
    assert api.delete(path).status_code == 204


def test_no_message_waits_at_a_busy_worker_while_another_is_idle(
    stack: Stack, busy: StackProcess, agent_server: AgentServer, until: Until
) -> None:
    idle = stack.start_worker(threads=2)
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.at("short").url}, limit=1)
    api = stack.api()
    ids = []
    for number in range(10):
        # One after the other: each comes as a message of its own.
        ids.append(submit(api, agent, f"short {number}")["execution_id"])
        until(lambda: all_ended(api, ids[-1:]), 5)
    assert Counter(agent_server.at("short").started) == dict.fromkeys(ids, 1)
    assert agent_server.at("long").active == 2
    stack.stop_worker(idle)
