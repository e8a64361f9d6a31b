"""Conversations over real connections: who waits is seen to, and who goes takes their waiting turn with them."""

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.agents.server import AgentServer
from tests.flows.submitting import check_ended, check_rest, execution, submit, unsettled
from tests.flows.test_callers import Later, http_agent
from tests.stack import Stack

Until = Callable[..., Any]


def say(stack: Stack, agent: str, message: str, **body: Any) -> Later:
    """A turn, said by a caller who waits for its answer."""
    return Later(lambda: stack.api().post(f"/api/agents/{agent}/chat", json={"message": message} | body))


def answer_or_none(stack: Stack, agent: str, message: str) -> Any:
    """The turn's answer; None where its server is gone before."""
    try:
        return stack.api().post(f"/api/agents/{agent}/chat", json={"message": message})
    except httpx.TransportError:
        return None


def hang_up_on(stack: Stack, agent: str, message: str, *, headers: dict[str, str] | None = None) -> None:
    """A turn whose caller goes after a second."""
    with pytest.raises(httpx.ReadTimeout):
        stack.api().post(f"/api/agents/{agent}/chat", json={"message": message}, headers=headers, timeout=1)


def turn(stack: Stack, agent: str, message: str) -> dict[str, Any] | None:
    """The turn's columns, once it has a row."""
    columns = "id, status, startable, seen_at, started_at, error_code"
    rows = stack.sql(f"SELECT {columns} FROM backlog_execution WHERE agent_name = %s AND message = %s", agent, message)
    return rows[0] if rows else None


def is_(stack: Stack, agent: str, message: str, status: str) -> bool:
    """Whether the turn has that status."""
    row = turn(stack, agent, message)
    return row is not None and row["status"] == status


def test_a_conversation_goes_on_in_its_session_and_its_turns_in_order(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = http_agent(stack, agent_server, limit=2)
    first = say(stack, agent, "first").response().json()
    assert (first["status"], first["response"], first["triggered_by"]) == ("success", "done: first", "chat")
    session = first["session_id"]
    second = say(stack, agent, "hang second", session_id=session)
    until(lambda: agent_server.active == 1)
    third = say(stack, agent, "third", session_id=session)
    until(lambda: is_(stack, agent, "third", "queued"))
    assert say(stack, agent, "of another session").response().json()["session_id"] != session
    assert agent_server.active == 1
    agent_server.let_go()
    answers = [later.response().json() for later in (second, third)]
    assert [(answer["status"], answer["session_id"]) for answer in answers] == [("success", session)] * 2
    assert answers[0]["completed_at"] <= answers[1]["started_at"]


def test_three_wait_the_fourth_is_refused_and_none_runs_above_the_limit(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    running = submit(api, agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1)
    waiting = [say(stack, agent, f"turn {number}") for number in range(3)]
    until(lambda: len(api.get(f"/api/agents/{agent}/queue/").json()["results"]) == 3)
    refused = say(stack, agent, "one too many").response()
    assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
    assert refused.json()["detail"] == f"Agent '{agent}' has 3 conversations waiting. Try again later."
    assert turn(stack, agent, "one too many") is None
    check_rest(stack, agent)
    agent_server.let_go()
    answers = [later.response() for later in waiting]
    assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(200, "success")] * 3
    until(lambda: unsettled(stack, agent) == 0)
    assert agent_server.peak == 1
    check_ended(stack, agent, accepted=[running, *(answer.json()["id"] for answer in answers)], begun=agent_server.started)


def test_who_hangs_up_in_line_is_cancelled_and_whoever_runs_goes_on(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    hang_up_on(stack, agent, "hang it has its slot")
    until(lambda: agent_server.active == 1)
    hang_up_on(stack, agent, "it only waits")
    until(lambda: is_(stack, agent, "it only waits", "cancelled"))
    assert agent_server.active == 1
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)
    begun = turn(stack, agent, "hang it has its slot")
    assert begun is not None
    assert execution(api, str(uuid.UUID(str(begun["id"]))))["response"] == "done: hang it has its slot"
    assert agent_server.messages == ["hang it has its slot"]
    check_rest(stack, agent)


def test_a_caller_who_is_held_is_seen_for_longer_than_one_who_went(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    submit(api, agent, "hang")
    until(lambda: agent_server.active == 1)
    held = say(stack, agent, "held")
    row = until(lambda: turn(stack, agent, "held"))
    # Its web process says so every few seconds; once is enough to go on for fifteen more.
    until(lambda: (now := turn(stack, agent, "held")) is not None and now["seen_at"] > row["seen_at"], 20)
    agent_server.let_go()
    assert held.response().json()["status"] == "success"


def test_a_turn_with_a_key_is_waited_for_again_after_a_lost_connection(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    submit(api, agent, "hang")
    until(lambda: agent_server.active == 1)
    headers = {"Idempotency-Key": "once"}
    hang_up_on(stack, agent, "again", headers=headers)
    again = Later(lambda: stack.api().post(f"/api/agents/{agent}/chat", json={"message": "again"}, headers=headers))
    until(lambda: is_(stack, agent, "again", "queued"))
    agent_server.let_go()
    answer = again.response()
    assert (answer.status_code, answer.headers["Idempotent-Replayed"], answer.json()["response"]) == (200, "true", "done: again")
    assert agent_server.messages.count("again") == 1


def test_turns_of_a_killed_web_process_leave_the_line_and_run_for_nobody(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    submit(api, agent, "hang")
    until(lambda: agent_server.active == 1)
    cut_off = Later(lambda: answer_or_none(stack, agent, "orphan"))
    until(lambda: is_(stack, agent, "orphan", "queued"))
    stack.web.kill()
    cut_off.join(20)
    assert cut_off.answer is None
    stack.ensure_whole()
    until(lambda: is_(stack, agent, "orphan", "cancelled"), 40)
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)
    assert agent_server.messages == ["hang"]
    orphan = turn(stack, agent, "orphan")
    assert orphan is not None
    assert (orphan["error_code"], orphan["started_at"]) == ("cancelled", None)
    check_rest(stack, agent)


def test_a_web_process_that_is_told_to_end_tells_who_waits_in_line(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(stack, agent_server), stack.api()
    submit(api, agent, "hang")
    until(lambda: agent_server.active == 1)
    held = say(stack, agent, "waits")
    until(lambda: is_(stack, agent, "waits", "queued"))
    stack.restart_web()
    answer = held.response()
    assert (answer.status_code, answer.json()["code"]) == (409, "cancelled")
    assert is_(stack, agent, "waits", "cancelled")
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)


def test_a_visitor_waits_for_an_answer_and_a_failure_says_nothing_of_the_inside(stack: Stack, agent_server: AgentServer) -> None:
    agent, api, nobody = http_agent(stack, agent_server), stack.api(), stack.api("")
    made = api.post(f"/api/agents/{agent}/public-links/", json={"name": "website"}).json()
    answer = nobody.post(made["url"], json={"message": "hello"})
    assert (answer.status_code, answer.json()["response"]) == (200, "done: hello")
    assert set(answer.json()) == {"id", "status", "response", "error_code", "completed_at"}
    failed = nobody.post(made["url"], json={"message": "status=500"})
    assert (failed.status_code, failed.json()["code"], failed.json()["detail"]) == (502, "agent_error", "The agent failed")
    shown = nobody.get(f"/api/public/executions/{made['token']}/{failed.json()['execution_id']}").json()
    assert (shown["status"], shown["error_code"], shown["response"]) == ("failed", "agent_error", None)
    assert execution(api, failed.json()["execution_id"])["error"] not in {None, "The agent failed"}
