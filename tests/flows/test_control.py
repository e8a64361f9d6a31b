"""Owners take hold of an agent at work: pause it, clear its line, free a slot by force, delete it."""

from collections.abc import Callable
from typing import Any

from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, check_rest, execution, holders, submit, unsettled
from tests.flows.test_callers import Later, http_agent
from tests.stack import Stack

Until = Callable[..., Any]


def test_a_paused_agent_finishes_what_runs_and_a_resume_starts_its_line_at_once(
    stack: Stack, agent_server: AgentServer, until: Until
) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    first, second = (submit(api, agent, message)["execution_id"] for message in ("hang first", "second"))
    until(lambda: agent_server.active == 1)
    assert api.post(f"/api/agents/{agent}/pause/").json()["paused"] is True
    agent_server.let_go()
    until(lambda: all_ended(api, [first]) and holders(stack, agent) == 0)
    third = submit(api, agent, "third")
    assert (third["status"], third["queue_position"]) == ("queued", 2)
    assert api.post(f"/api/agents/{agent}/task", json={"message": "not now"}).json()["code"] == "agent_paused"
    assert api.post(f"/api/agents/{agent}/resume").json()["paused"] is False
    until(lambda: all_ended(api, [second, third["execution_id"]]))
    assert agent_server.messages == ["hang first", "second", "third"]
    check_rest(stack, agent)


def test_a_slot_that_was_freed_by_force_goes_to_the_next_while_the_work_is_told_to_stop(
    stack: Stack, agent_server: AgentServer, until: Until
) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    # Its agent says that it has stopped only when it is let go.
    stuck, after = (submit(api, agent, message)["execution_id"] for message in ("hang stubborn", "after"))
    until(lambda: agent_server.active == 1)
    path = f"/api/agents/{agent}/slots/release/"
    answer = api.post(path, json={"execution_id": stuck, "force": True})
    assert (answer.status_code, answer.json()["limit_may_be_exceeded"]) == (200, True)
    until(lambda: all_ended(api, [after]))
    assert execution(api, after)["status"] == "success"
    assert (execution(api, stuck)["status"], execution(api, stuck)["error_code"]) == ("failed", "lease_lost")
    until(lambda: stuck in agent_server.terminated)
    agent_server.let_go()
    until(lambda: agent_server.active == 0)
    assert execution(api, stuck)["error_code"] == "lease_lost"
    check_rest(stack, agent)


def test_a_deleted_agents_callers_are_told_and_its_name_is_clean(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    runs = submit(api, agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1)
    held = Later(lambda: stack.api().post(f"/api/agents/{agent}/task", json={"message": "held", "on_full": "queue"}))
    waits = [submit(api, agent, "waits")["execution_id"] for _ in range(2)]
    until(lambda: api.get(f"/api/agents/{agent}/queue/").json()["depth"] == 3)
    assert api.delete(f"/api/agents/{agent}/").status_code == 204
    answer = held.response(5)
    assert (answer.status_code, answer.json()["code"]) == (409, "agent_deleted")
    until(lambda: all_ended(api, [runs, *waits]))
    assert {execution(api, one)["error_code"] for one in (runs, *waits)} == {"agent_deleted"}
    assert agent_server.terminated == [runs]
    until(lambda: unsettled(stack, agent) == 0 and not stack.redis.hexists("agent:versions", agent))
    assert list(stack.redis.scan_iter(f"agent:*:{agent}*")) == []
    again = {"name": agent, "runtime": {"kind": "http", "url": agent_server.url}}
    assert api.post("/api/agents/", json=again).status_code == 201
    assert api.get(f"/api/agents/{agent}/capacity").json()["active_slots"] == 0
    assert api.get(f"/api/agents/{agent}/executions/").json()["results"] == []
    new = submit(api, agent, "new")["execution_id"]
    until(lambda: all_ended(api, [new]))
    assert execution(api, new)["status"] == "success"


def test_a_cleared_line_is_told_to_who_waits_in_it(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    runs = submit(api, agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1)
    held = Later(lambda: stack.api().post(f"/api/agents/{agent}/task", json={"message": "held", "on_full": "queue"}))
    until(lambda: api.get(f"/api/agents/{agent}/queue/").json()["depth"] == 1)
    assert api.post(f"/api/agents/{agent}/queue/clear/").json() == {"cleared": 1}
    assert held.response(5).json()["code"] == "cancelled"
    agent_server.let_go()
    until(lambda: all_ended(api, [runs]))
    assert execution(api, runs)["status"] == "success"
    check_rest(stack, agent)
