"""The main job, end to end: tasks take slots, wait in line, start as slots free, and every reading of it is true."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, execution, holders, submit, unsettled
from tests.stack import Stack

Until = Callable[..., Any]


@dataclass
class Held:
    """An agent with two slots whose tasks go on until `let_go()`."""

    name: str
    let_go: Callable[[], None]


@pytest.fixture(params=["command", "http"])
def held_agent(request: pytest.FixtureRequest, stack: Stack, agent_server: AgentServer, tmp_path: Path) -> Held:
    """It, by each runtime; a task with `now` in it ends at once."""
    if request.param == "http":
        name = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2, key=stack.superuser_key)
        return Held(name, agent_server.let_go)
    gate = tmp_path / "gate"
    program = f'm=$(cat); case "$m" in *now*) ;; *) until [ -e {gate} ]; do sleep 0.05; done;; esac; printf "done: %s" "$m"'
    name = stack.make_agent(runtime={"kind": "command", "argv": ["sh", "-c", program]}, limit=2)
    return Held(name, gate.touch)


def test_five_tasks_on_two_slots_run_in_order_and_end_with_the_agents_own_output(stack: Stack, held_agent: Held, until: Until) -> None:
    api, agent = stack.api(stack.superuser_key), held_agent.name
    answers = [submit(api, agent, f"hang task {number}") for number in range(5)]
    assert [(one["status"], one.get("queue_position")) for one in answers] == [
        ("accepted", None), ("accepted", None), ("queued", 1), ("queued", 2), ("queued", 3),
    ]  # fmt: skip
    capacity = api.get(f"/api/agents/{agent}/capacity").json()
    assert (capacity["active_slots"], capacity["available_slots"], capacity["queued"]) == (2, 0, 3)
    assert [slot["slot_number"] for slot in capacity["slots"]] == [1, 2]
    assert {slot["execution_id"] for slot in capacity["slots"]} == {one["execution_id"] for one in answers[:2]}
    meter = api.get("/api/agents/slots").json()["agents"][agent]
    assert (meter["max"], meter["active"], meter["queued"]) == (2, 2, 3)

    ids = [one["execution_id"] for one in answers]
    held_agent.let_go()
    until(lambda: all_ended(api, ids))
    ended = [execution(api, one) for one in ids]
    assert [one["status"] for one in ended] == ["success"] * 5
    assert [one["response"] for one in ended] == [f"done: hang task {number}" for number in range(5)]
    # Slots are granted in order; two that were granted at once may begin in either.
    grants = [datetime.fromisoformat(one["dispatched_at"]) for one in ended]
    assert grants == sorted(grants)
    assert {one["slot_number"] for one in ended} == {1, 2}
    until(lambda: holders(stack, agent) == 0 and unsettled(stack, agent) == 0)
    assert api.get("/api/agents/slots").json()["agents"][agent] | {"version": 0} == {
        "max": 2, "active": 0, "queued": 0, "paused": False, "version": 0,
    }  # fmt: skip


def test_a_sync_task_answers_with_its_result_and_is_refused_at_capacity(stack: Stack, held_agent: Held, until: Until) -> None:
    api, agent = stack.api(stack.superuser_key), held_agent.name
    answer = api.post(f"/api/agents/{agent}/task", json={"message": "now"})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["response"]) == ("success", "done: now")

    taken = [submit(api, agent, "hang") for _ in range(2)]
    refused = api.post(f"/api/agents/{agent}/task", json={"message": "no room"})
    assert refused.status_code == 429
    assert refused.json()["detail"] == f"Agent '{agent}' is at capacity (2 parallel tasks). Try again later."
    assert refused.json()["code"] == "at_capacity"
    assert 1 <= int(refused.headers["Retry-After"]) <= 300
    held_agent.let_go()
    until(lambda: all_ended(api, [one["execution_id"] for one in taken]))
    rows = stack.sql("SELECT count(*) AS n FROM backlog_execution WHERE agent_name = %s", agent)
    assert rows[0]["n"] == 3


def test_every_field_reaches_the_agent_the_same_whether_it_waited_or_not(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    api = stack.api()
    fields = {
        "model": "m-1", "system_prompt": " keep  my spaces ", "allowed_tools": ["read", "write"], "max_turns": 7,
        "timeout_seconds": 77, "metadata": {"ünicode": [1, None, {"deep": True}]}, "priority": 3,
    }  # fmt: skip
    answers = [submit(api, agent, "sleep=0.3 same", **fields) for _ in range(2)]
    assert [one["status"] for one in answers] == ["accepted", "queued"]
    until(lambda: all_ended(api, [one["execution_id"] for one in answers]))
    direct, waited = ({key: value for key, value in body.items() if key != "execution_id"} for body in agent_server.bodies)
    assert direct == waited
    assert direct["message"] == "sleep=0.3 same"
    assert {key: direct[key] for key in fields if key != "priority"} == {key: value for key, value in fields.items() if key != "priority"}


def test_a_raised_limit_starts_waiting_work_without_any_other_event(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    api = stack.api()
    for _ in range(5):
        submit(api, agent, "hang")
    until(lambda: agent_server.active == 1)
    assert api.put(f"/api/agents/{agent}/capacity", json={"max_parallel_tasks": 5}).status_code == 200
    until(lambda: agent_server.active == 5)
    assert api.put(f"/api/agents/{agent}/capacity", json={"max_parallel_tasks": 1}).status_code == 200
    capacity = api.get(f"/api/agents/{agent}/capacity").json()
    assert (capacity["active_slots"], capacity["available_slots"], capacity["max_parallel_tasks"]) == (5, 0, 1)
    late = submit(api, agent, "late")
    assert late["status"] == "queued"
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)
    assert agent_server.peak == 5


def test_the_ceiling_bounds_every_limit_and_rewrites_none(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=5)
    owner, superuser = stack.api(), stack.api(stack.superuser_key)
    assert superuser.put("/api/settings/max-parallel-tasks-ceiling", json={"value": 2}).status_code == 200
    try:
        for _ in range(5):
            submit(owner, agent, "hang")
        until(lambda: agent_server.active == 2)
        capacity = owner.get(f"/api/agents/{agent}/capacity").json()
        assert (capacity["max_parallel_tasks"], capacity["effective_max_parallel_tasks"], capacity["limited_by"]) == (5, 2, "ceiling")
    finally:
        assert superuser.put("/api/settings/max-parallel-tasks-ceiling", json={"value": 10}).status_code == 200
    until(lambda: agent_server.active == 5)
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)
