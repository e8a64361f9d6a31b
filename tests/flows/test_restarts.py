"""Processes that are told to end: what goes on ends well, what never started keeps its place, and nobody hears an error."""

import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.agents.programs import living
from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, execution, holders, statuses, submit, unsettled
from tests.stack import Stack, StackProcess

Until = Callable[..., Any]
#: Longer than the stack's workers let their runs finish, by far.
LONG = ["sh", "-c", "trap '' INT; sleep 600"]


@pytest.fixture
def second(stack: Stack) -> Iterator[StackProcess]:
    """Another worker beside the stack's."""
    worker = stack.start_worker()
    yield worker
    if worker in stack.workers:
        stack.stop_worker(worker)


def placed(stack: Stack, agent: str) -> list[dict[str, Any]]:
    """What decides the places in the agent's line, in order."""
    columns = "id, status, queued_at, front, priority"
    return stack.sql(f"SELECT {columns} FROM backlog_execution WHERE agent_name = %s ORDER BY queued_at, id", agent)


# -- A worker ----------------------------------------------------------------------------------------------------------
def test_runs_longer_than_the_grace_end_as_worker_lost_and_the_line_waits_in_place(
    stack: Stack, agent_server: AgentServer, until: Until
) -> None:
    mark = f"TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    command = stack.make_agent(runtime={"kind": "command", "argv": LONG, "env": {name: value}}, limit=1)
    http = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2, key=stack.superuser_key)
    api = stack.api(stack.superuser_key)
    long = [submit(api, command, "for ever")["execution_id"], submit(api, http, "hang 1")["execution_id"]]
    short = submit(api, http, "sleep=2 2")["execution_id"]
    waiting = [submit(api, http, f"sleep=0.05 {number}")["execution_id"] for number in range(3, 6)]
    until(lambda: agent_server.active == 2 and living(mark))
    places = [row["queued_at"] for row in placed(stack, http)]
    began = time.monotonic()
    stack.stop_worker()
    assert time.monotonic() - began < float(stack.env["TRINITY_GRACE_SECONDS"]) + 12
    assert not living(mark)
    assert [execution(api, one)["error_code"] for one in long] == ["worker_lost"] * 2
    assert execution(api, short)["status"] == "success"
    assert [row["queued_at"] for row in placed(stack, http)] == places
    assert agent_server.active == 0  # the agent was told to end what the worker left
    stack.start_worker()
    until(lambda: all_ended(api, waiting), 60)
    assert statuses(stack, http) == {"success": 4, "failed": 1}
    assert Counter(agent_server.started) == dict.fromkeys([long[1], short, *waiting], 1)
    # Two begin side by side, so that their requests may arrive in either order.
    granted = "SELECT message FROM backlog_execution WHERE agent_name = %s ORDER BY granted_at, queued_at"
    assert [row["message"] for row in stack.sql(granted, http)][2:] == [f"sleep=0.05 {number}" for number in range(3, 6)]


@pytest.mark.parametrize("second_signal", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_second_signal_ends_the_grace(stack: Stack, agent_server: AgentServer, until: Until, second_signal: signal.Signals) -> None:
    worker = stack.start_worker(TRINITY_GRACE_SECONDS="300")
    stack.stop_worker(next(one for one in stack.workers if one is not worker))
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    api = stack.api()
    running = submit(api, agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1 and execution(api, running)["started_at"])
    worker.signal(signal.SIGTERM)
    until(lambda: worker.said("worker.leaving"))
    assert worker.running
    assert execution(api, running)["status"] == "running"
    worker.signal(second_signal)
    until(lambda: not worker.running, 30)
    stack.stop_worker(worker)
    assert (execution(api, running)["status"], execution(api, running)["error_code"]) == ("failed", "worker_lost")
    assert agent_server.active == 0


def test_what_a_leaving_worker_is_sent_goes_to_another_at_once(
    stack: Stack, second: StackProcess, agent_server: AgentServer, until: Until
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=10)
    api = stack.api()
    leaver = stack.start_worker(TRINITY_GRACE_SECONDS="60")
    held = [submit(api, agent, "hang")["execution_id"] for _ in range(5)]
    until(lambda: agent_server.active == 5)
    ids = []
    leaver.signal(signal.SIGTERM)
    # For as long as a poll of the leaver's may be under way, and longer: whatever it is given is not its own any more.
    leaves_until = time.monotonic() + 3
    while time.monotonic() < leaves_until:
        ids.append(submit(api, agent, f"while it leaves {len(ids)}")["execution_id"])
        time.sleep(0.05)
    until(lambda: all_ended(api, ids), 10)
    assert leaver.running
    agent_server.let_go()
    until(lambda: all_ended(api, held), 30)
    stack.stop_worker(leaver)
    assert statuses(stack, agent) == {"success": len(held) + len(ids)}
    assert Counter(agent_server.started) == dict.fromkeys([*held, *ids], 1)


# -- The web process ---------------------------------------------------------------------------------------------------
def test_a_web_process_told_to_end_answers_everybody_who_waits(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    api = stack.api()
    key = {"Idempotency-Key": uuid.uuid4().hex}
    answers: list[httpx.Response] = []

    def wait_for_result() -> None:
        answers.append(api.post(f"/api/agents/{agent}/task", json={"message": "hang"}, headers=key))

    waiter = threading.Thread(target=wait_for_result)
    waiter.start()
    until(lambda: agent_server.active == 1)
    stack.restart_web()
    waiter.join(30)
    assert [answer.status_code for answer in answers] == [504]
    known = answers[0].json()["execution_id"]
    agent_server.let_go()
    until(lambda: all_ended(stack.api(), [known]), 30)
    again = stack.api().post(f"/api/agents/{agent}/task", json={"message": "hang"}, headers=key)
    assert (again.status_code, again.json()["id"], again.json()["status"]) == (200, known, "success")
    assert agent_server.started == [known]


# -- All of them -------------------------------------------------------------------------------------------------------
#: Posts tasks with keys to all web processes in turn, one after the other, until its stdin ends; asks the next one where one
#: is away, and prints `accepted ID` or `refused STATUS`.
LOAD = """
import json, sys, threading, uuid
import httpx
key, path, *urls = sys.argv[1:]
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
number = 0
while not over.wait(0.02):
    number += 1
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": uuid.uuid4().hex}
    answer = None
    for turn in range(200):
        try:
            body = {"message": f"sleep=0.1 {number}", "async_mode": True}
            answer = httpx.post(urls[(number + turn) % len(urls)] + path, json=body, headers=headers, timeout=30, trust_env=False)
            break
        except httpx.TransportError:
            over.wait(0.05)
    if answer is None:
        print("nobody answers", flush=True)
    elif answer.status_code == 202:
        print("accepted " + answer.json()["execution_id"], flush=True)
    else:
        print(f"refused {answer.status_code} {answer.text}", flush=True)
"""


@pytest.fixture(scope="module")
def rolling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two web processes and two workers."""
    stack = Stack(tmp_path_factory.mktemp("rolling"), webs=2)
    stack.start_worker()
    yield stack
    stack.close()


def test_all_restarted_one_by_one_under_load_lose_nothing_and_refuse_nobody(
    rolling: Stack, agent_server: AgentServer, until: Until
) -> None:
    stack, path = rolling, "/api/agents/{}/task"
    agents = [stack.make_agent(runtime={"kind": "http", "url": agent_server.at(name).url}, limit=4, depth=5000) for name in ("a", "b")]
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", LOAD, stack.owner_key, path.format(agent), *stack.urls],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for agent in agents
    ]  # fmt: skip
    until(lambda: len(agent_server.started) >= 20, 60)
    for worker in list(stack.workers):
        stack.stop_worker(worker)
        stack.start_worker()
    for number, web in enumerate(stack.webs):
        web.stop()
        stack.webs[number] = stack.start_web(number)
    lines = [line for client in clients for line in client.communicate(timeout=60)[0].splitlines()]
    accepted = [line.removeprefix("accepted ") for line in lines if line.startswith("accepted ")]
    assert [line for line in lines if not line.startswith("accepted ")] == []
    assert len(accepted) > 50
    until(lambda: sum(unsettled(stack, agent) for agent in agents) == 0, 60)
    # A client whose answer was cut off asked again with its key: what it was told is all there is.
    assert sum(statuses(stack, agent).get("success", 0) for agent in agents) == len(accepted)
    assert Counter(agent_server.started) == dict.fromkeys(accepted, 1)
    assert max(agent_server.at(name).peak for name in ("a", "b")) <= 4
    assert sum(holders(stack, agent) for agent in agents) == 0
