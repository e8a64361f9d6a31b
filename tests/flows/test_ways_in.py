"""How a task ends is told alike on every way in that waits for its result."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.agents.server import AgentServer
from tests.flows.test_callers import Later, http_agent
from tests.stack import Stack

Until = Callable[..., Any]
Say = Callable[[str, str], httpx.Response]


@pytest.fixture
def ways(stack: Stack) -> dict[str, Say]:
    """Each way in: `say(agent, message)` is its answer."""
    system = stack.api(stack.superuser_key).post("/api/keys/", json={"name": "caller", "scope": "system"}).json()["key"]

    def publicly(agent: str, message: str) -> httpx.Response:
        link = stack.api().post(f"/api/agents/{agent}/public-links/", json={"name": "site"}).json()
        return stack.api("").post(f"/api/public/chat/{link['token']}", json={"message": message})

    def internally(agent: str, message: str) -> httpx.Response:
        body = {"agent_name": agent, "message": message, "triggered_by": "manual"}
        return stack.api(system).post("/api/internal/execute-task", json=body)

    return {
        "task": lambda agent, message: stack.api().post(f"/api/agents/{agent}/task", json={"message": message}),
        "chat": lambda agent, message: stack.api().post(f"/api/agents/{agent}/chat", json={"message": message}),
        "public": publicly,
        "internal": internally,
    }


@pytest.mark.parametrize("way", ["task", "chat", "public", "internal"])
def test_its_end_is_the_answer(stack: Stack, agent_server: AgentServer, until: Until, ways: dict[str, Say], way: str) -> None:
    agent, say = http_agent(stack, agent_server), ways[way]
    answer = say(agent, "hello")
    assert (answer.status_code, answer.json()["status"], answer.json()["response"]) == (200, "success", "done: hello")
    answer = say(agent, "status=500")
    assert (answer.status_code, answer.json()["code"]) == (502, "agent_error")
    held = Later(lambda: say(agent, "hang"))
    [running] = until(lambda: stack.api().get(f"/api/agents/{agent}/executions/?status=running").json()["results"] or None)
    until(lambda: agent_server.active == 1)
    assert stack.api().post(f"/api/executions/{running['id']}/cancel/").status_code == 202
    answer = held.response(30)
    assert (answer.status_code, answer.json()["code"], answer.json()["execution_id"]) == (409, "cancelled", running["id"])
