"""Processes killed, the gate emptied: what was accepted still ends, once, within the limit."""

import json
import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import httpx

from tests.agents.programs import living
from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, check_ended, check_rest, execution, holders, poster, statuses, submit, unsettled
from tests.stack import Stack

Until = Callable[..., Any]


def test_a_killed_workers_commands_die_and_a_new_worker_goes_on_with_the_line(stack: Stack, until: Until) -> None:
    mark = f"TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    runtime = {"kind": "command", "argv": ["sh", "-c", 'read m; case "$m" in long*) sleep 600;; esac; echo "$m"'], "env": {name: value}}
    agent = stack.make_agent(runtime=runtime, limit=2)
    api = stack.api(stack.superuser_key)
    long = [submit(api, agent, "long\n")["execution_id"] for _ in range(2)]
    short = [submit(api, agent, f"short {number}\n")["execution_id"] for number in range(3)]
    until(lambda: len(living(mark)) >= 2)
    stack.kill_worker()
    until(lambda: not living(mark), 12)
    stack.start_worker()
    until(lambda: all_ended(api, [*long, *short]), 60)
    assert [execution(api, one)["error_code"] for one in long] == ["worker_lost"] * 2
    assert [execution(api, one)["response"] for one in short] == [f"short {number}" for number in range(3)]
    until(lambda: holders(stack, agent) == 0 and unsettled(stack, agent) == 0, 60)
    check_ended(stack, agent, accepted=[*long, *short])


def test_a_flush_under_load_shows_the_agent_no_fourth_and_loses_nothing(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=3, depth=200)
    api = stack.api()
    held = [submit(api, agent, f"hang {number}")["execution_id"] for number in range(3)]
    waiting = [submit(api, agent, f"sleep=0.05 {number}")["execution_id"] for number in range(20)]
    until(lambda: agent_server.active == 3)
    stack.redis.flushall()
    # Admission is back: the rows' slots are taken again, and newcomers find them taken.
    until(lambda: holders(stack, agent) == 3, 5)
    late = api.post(f"/api/agents/{agent}/task", json={"message": "late", "async_mode": True})
    assert (late.status_code, late.json()["status"]) == (202, "queued")
    check_rest(stack, agent)
    assert agent_server.active == 3
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0, 30)
    assert agent_server.peak == 3
    assert statuses(stack, agent) == {"success": 24}
    check_ended(stack, agent, accepted=[*held, *waiting, late.json()["execution_id"]], begun=agent_server.started)


def test_flushes_while_clients_post_lose_no_accepted_task(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=3, depth=500)
    client = subprocess.Popen(poster(stack, agent, count=120, mark="f"), stdout=subprocess.PIPE, text=True)
    for threshold in (20, 50, 80):
        until(lambda least=threshold: len(agent_server.started) >= least or client.poll() is not None, 60)
        stack.redis.flushall()
    answers = [json.loads(line) for line in client.communicate(timeout=60)[0].splitlines()]
    until(lambda: unsettled(stack, agent) == 0, 60)
    assert agent_server.peak <= 3
    accepted = [body["execution_id"] for status, body in answers if status == httpx.codes.ACCEPTED]
    check_ended(stack, agent, accepted=accepted, begun=agent_server.started)
    assert statuses(stack, agent) == {"success": len(accepted)}
    assert len(accepted) >= 100


def test_a_store_that_comes_back_empty_keeps_the_runs_and_their_slots(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    api = stack.api()
    ids = [submit(api, agent, "hang")["execution_id"] for _ in range(2)]
    waiting = submit(api, agent, "waits")["execution_id"]
    until(lambda: agent_server.active == 2)
    stack.restart_store()
    until(lambda: holders(stack, agent) == 2, 10)
    check_rest(stack, agent)
    agent_server.let_go()
    until(lambda: all_ended(api, [*ids, waiting]), 30)
    assert agent_server.peak == 2
    assert [execution(api, one)["status"] for one in [*ids, waiting]] == ["success"] * 3
    check_ended(stack, agent, accepted=[*ids, waiting], begun=agent_server.started)


def test_a_worker_told_to_end_lets_its_runs_finish(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    api = stack.api()
    ids = [submit(api, agent, "sleep=1.5 work")["execution_id"] for _ in range(4)]
    until(lambda: agent_server.active == 2)
    stack.restart_worker()
    until(lambda: all_ended(api, ids), 30)
    assert [execution(api, one)["status"] for one in ids] == ["success"] * 4
    check_ended(stack, agent, accepted=ids, begun=agent_server.started)
