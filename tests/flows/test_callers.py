"""Callers who wait, hang up, repeat themselves or change their mind."""

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, execution, submit, unsettled
from tests.stack import Stack

Until = Callable[..., Any]


class Later(threading.Thread):
    """A request made in a thread of its own; `answer` is there once it ended."""

    def __init__(self, request: Callable[[], httpx.Response]) -> None:
        super().__init__(daemon=True)
        self._request = request
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        """Make it."""
        self.answer = self._request()

    def response(self, seconds: float = 20) -> httpx.Response:
        """The answer."""
        self.join(seconds)
        assert self.answer is not None, f"no answer within {seconds} s"
        return self.answer


def http_agent(stack: Stack, agent_server: AgentServer, *, limit: int = 1) -> str:
    """An agent of `agent_server`."""
    return stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=limit)


def test_a_sync_call_that_waits_in_line_is_held_and_answered_with_its_result(stack: Stack, agent_server: AgentServer) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    submit(api, agent, "sleep=1 first")
    held = Later(lambda: api.post(f"/api/agents/{agent}/task", json={"message": "second", "on_full": "queue"}))
    answer = held.response()
    assert (answer.status_code, answer.json()["status"], answer.json()["response"]) == (200, "success", "done: second")
    queued_at, started_at = (datetime.fromisoformat(answer.json()[name]) for name in ("queued_at", "started_at"))
    assert queued_at <= started_at


def test_fifty_callers_with_the_same_key_get_the_same_execution(stack: Stack, agent_server: AgentServer) -> None:
    agent = http_agent(stack, agent_server)
    headers = {"Idempotency-Key": "fifty"}
    callers = [
        Later(lambda: stack.api().post(f"/api/agents/{agent}/task", json={"message": "sleep=1 shared"}, headers=headers)) for _ in range(50)
    ]
    answers = [caller.response(30) for caller in callers]
    assert [answer.status_code for answer in answers] == [200] * 50
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    assert len(agent_server.started) == 1


def test_a_caller_that_hangs_up_changes_nothing(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    with pytest.raises(httpx.ReadTimeout):
        api.post(f"/api/agents/{agent}/task", json={"message": "sleep=1 goes on"}, timeout=0.5)
    until(lambda: agent_server.started)
    [execution_id] = agent_server.started
    until(lambda: all_ended(api, [execution_id]))
    assert execution(api, execution_id)["response"] == "done: sleep=1 goes on"


def test_a_wait_that_runs_out_is_504_and_the_same_key_later_has_the_result(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    submit(api, agent, "hang")
    headers = {"Idempotency-Key": "patient"}
    body = {"message": "short", "on_full": "queue", "timeout_seconds": 1}
    began = time.monotonic()
    answer = api.post(f"/api/agents/{agent}/task", json=body, headers=headers)
    assert time.monotonic() - began >= 1.9
    assert (answer.status_code, answer.json()["code"]) == (504, "wait_timeout")
    execution_id = answer.json()["execution_id"]
    assert answer.json()["detail"] == f"Execution {execution_id} is still queued"
    assert answer.headers["Location"].rstrip("/").endswith(execution_id)
    agent_server.let_go()
    until(lambda: all_ended(api, [execution_id]))
    again = api.post(f"/api/agents/{agent}/task", json=body, headers=headers)
    assert (again.status_code, again.json()["id"], again.headers["Idempotent-Replayed"]) == (200, execution_id, "true")
    assert again.json()["response"] == "done: short"


def test_a_cancel_while_queued_tells_the_waiting_caller_at_once(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    submit(api, agent, "hang")
    held = Later(lambda: stack.api().post(f"/api/agents/{agent}/task", json={"message": "never", "on_full": "queue"}))
    queued = until(lambda: api.get(f"/api/agents/{agent}/queue/").json()["results"])
    assert api.post(f"/api/executions/{queued[0]['id']}/cancel/").json() == {"status": "cancelled"}
    answer = held.response(5)
    assert (answer.status_code, answer.json()["code"]) == (409, "cancelled")
    assert answer.json()["execution_id"] == queued[0]["id"]
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)
    assert "never" not in agent_server.messages


def test_a_cancel_of_one_of_three_stops_that_one_alone(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server, limit=3), stack.api()
    ids = [submit(api, agent, f"hang {number}")["execution_id"] for number in range(3)]
    until(lambda: agent_server.active == 3)
    answer = api.post(f"/api/executions/{ids[1]}/cancel/")
    assert (answer.status_code, answer.json()) == (202, {"status": "cancelling"})
    until(lambda: execution(api, ids[1])["status"] == "cancelled")
    assert agent_server.terminated == [ids[1]]
    assert agent_server.active == 2
    assert api.get(f"/api/agents/{agent}/capacity").json()["active_slots"] == 2
    assert api.post(f"/api/executions/{ids[1]}/cancel/").status_code == 200
    agent_server.let_go()
    until(lambda: all_ended(api, ids))
    assert [execution(api, one)["status"] for one in ids] == ["success", "cancelled", "success"]


def test_a_running_command_is_cancelled_with_its_process(stack: Stack, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "command", "argv": ["sleep", "600"]}, limit=1)
    api = stack.api(stack.superuser_key)
    execution_id = submit(api, agent, "long")["execution_id"]
    until(lambda: execution(api, execution_id)["started_at"])
    assert api.post(f"/api/executions/{execution_id}/cancel/").status_code == 202
    until(lambda: execution(api, execution_id)["status"] == "cancelled")
    until(lambda: api.get(f"/api/agents/{agent}/capacity").json()["active_slots"] == 0)


def test_a_held_wait_answers_as_soon_as_the_execution_ends(stack: Stack, agent_server: AgentServer) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    execution_id = submit(api, agent, "sleep=1 awaited")["execution_id"]
    began = time.monotonic()
    answer = api.get(f"/api/executions/{execution_id}/", params={"wait": 20})
    assert (answer.json()["status"], answer.json()["response"]) == ("success", "done: sleep=1 awaited")
    assert time.monotonic() - began < 15


def test_a_held_look_at_a_log_answers_with_its_next_entry_and_then_with_its_end(stack: Stack, until: Until) -> None:
    says_and_waits = ["sh", "-c", """echo '{"type": "note", "text": "here"}'; exec sleep 60"""]
    agent, api = stack.make_agent(runtime={"kind": "command", "argv": says_and_waits}), stack.api(stack.superuser_key)
    execution_id = submit(api, agent, "speak")["execution_id"]
    log = f"/api/executions/{execution_id}/events/"
    began = time.monotonic()
    [entry] = api.get(log, params={"wait": 30}).json()["results"]
    assert (entry["type"], execution(api, execution_id)["status"]) == ("note", "running")
    assert time.monotonic() - began < 20
    waiting = Later(lambda: api.get(log, params={"wait": 30, "after": entry["seq"]}))
    assert api.post(f"/api/executions/{execution_id}/cancel/").status_code == 202
    assert [further["type"] for further in waiting.response(25).json()["results"]] in ([], ["text"])
    until(lambda: execution(api, execution_id)["status"] == "cancelled")


def test_the_errors_of_a_sync_run_name_their_cause(stack: Stack, agent_server: AgentServer) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    expected = {"status=401": (502, "agent_auth"), "status=429": (502, "agent_rate_limited"), "status=500": (502, "agent_error"),
                "status=504": (504, "timeout"), "garbage": (502, "agent_error")}  # fmt: skip
    for message, (status, code) in expected.items():
        answer = api.post(f"/api/agents/{agent}/task", json={"message": message})
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert answer.json()["execution_id"]
        assert answer.headers["Content-Type"] == "application/problem+json"
