"""Tasks that the house's own services submit with a system key, under ids that they have made."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from backlog.models import Execution, Status
from fleet.models import Agent, Session
from tests.runtime.conftest import Api

PATH = "/api/internal/execute-task"


@pytest.fixture
def execute(api: Api, make_key: Any, superuser: User) -> Callable[..., Any]:
    """A service's task: `execute(agent, "text", by=…, headers={…}, **body)`; asynchronous unless the body says otherwise."""
    key = make_key("system", owner=superuser)

    def post(to: Agent | str, message: Any = "hello", *, by: User | str | None = key, headers: Any = None, **body: Any) -> Any:
        name = to if isinstance(to, str) else to.name
        data = {"agent_name": name, "message": message, "triggered_by": "schedule", "async_mode": True} | body
        sent = {name: value for name, value in data.items() if value is not None}
        return api(by).post(PATH, sent, format="json", headers=headers)

    return post


def test_a_task_is_admitted_like_any_other(execute: Any, make_agent: Any) -> None:
    single = make_agent(limit=1, depth=1)
    answers = [execute(single), execute(single, triggered_by="manual"), execute(single), execute(single, async_mode=None)]
    first, second = Execution.objects.order_by("created_at", "id")
    assert [(answer.status_code, answer.json().get("status"), answer.json().get("code")) for answer in answers] == [
        (202, "accepted", None), (202, "queued", None), (429, 429, "backlog_full"), (429, 429, "at_capacity"),
    ]  # fmt: skip
    assert answers[0].json() == {"status": "accepted", "execution_id": str(first.pk), "agent_name": single.name, "async_mode": True}
    assert answers[0]["Location"] == f"/api/executions/{first.pk}/"
    assert answers[1].json()["queue_position"] == 1
    assert [(row.triggered_by, row.source_kind, row.source_name) for row in (first, second)] == [
        ("schedule", "system", "system key"), ("manual", "system", "system key"),
    ]  # fmt: skip
    assert answers[2].json()["max_backlog_depth"] == 1


def test_both_preferences_together_wait_in_line_as_a_tasks_do(execute: Any, make_agent: Any) -> None:
    single = make_agent(limit=1)
    execute(single)
    answer = execute(single, async_mode=None, headers={"Prefer": "respond-async, wait=1"})
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")


def test_it_may_run_longer_than_the_agents_own_limit_and_in_any_session(execute: Any, agent: Agent, owner: User) -> None:
    session = Session.objects.create(agent=agent, owner=owner)
    body = {"timeout_seconds": 7200, "session_id": str(session.pk), "model": "m", "priority": 9, "metadata": {"a": [1, None]}}
    assert execute(agent, **body).status_code == 202
    row = Execution.objects.get()
    assert (row.timeout_seconds, row.session_id, row.model, row.priority, row.metadata) == (7200, session.pk, "m", 9, {"a": [1, None]})


def test_a_given_id_is_created_once_and_answered_with_after(execute: Any, agent: Agent) -> None:
    execution_id = str(uuid.uuid4())
    first = execute(agent, execution_id=execution_id, timeout_seconds=1000)
    again = [execute(agent, execution_id=execution_id), execute(agent, execution_id=execution_id, timeout_seconds=1000)]
    assert first.json()["execution_id"] == execution_id
    assert not first.has_header("Idempotent-Replayed")
    assert [(answer.status_code, answer.json(), answer["Idempotent-Replayed"]) for answer in again] == [(202, first.json(), "true")] * 2
    assert Execution.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_result_is_the_answer_to_the_same_id(execute: Any, carry: Any, agent: Agent) -> None:
    execution_id = str(uuid.uuid4())
    assert execute(agent, "say it", execution_id=execution_id, async_mode=None).json()["code"] == "wait_timeout"
    carry(execution_id)
    answer = execute(agent, "say it", execution_id=execution_id, async_mode=None)
    assert (answer.status_code, answer.json()["id"], answer.json()["response"]) == (200, execution_id, "say it")


@pytest.mark.parametrize(
    "other",
    [
        {"message": "another"}, {"triggered_by": "manual"}, {"model": "m"}, {"priority": 1}, {"timeout_seconds": 5},
        {"metadata": {"a": 1}}, {"max_turns": 1}, {"allowed_tools": []}, {"system_prompt": "p"},
    ],
)  # fmt: skip
def test_an_id_with_another_request_is_refused(execute: Any, agent: Agent, other: dict[str, Any]) -> None:
    execution_id = str(uuid.uuid4())
    execute(agent, execution_id=execution_id)
    answer = execute(agent, execution_id=execution_id, **other)
    assert (answer.status_code, answer.json()["code"], answer.json()["execution_id"]) == (422, "idempotency_mismatch", execution_id)
    assert answer.json()["detail"] == "execution_id was used with a different request"


def test_another_agents_id_is_refused(execute: Any, make_agent: Any) -> None:
    execution_id = str(uuid.uuid4())
    execute(make_agent(), execution_id=execution_id)
    answer = execute(make_agent(), execution_id=execution_id)
    assert (answer.status_code, answer.json()["code"]) == (409, "execution_id_taken")


def test_a_key_works_beside_the_id_and_is_none_of_a_tasks(
    execute: Any, post_task: Any, make_key: Any, superuser: User, agent: Agent
) -> None:
    key = {"Idempotency-Key": "k"}
    first = execute(agent, headers=key)
    assert execute(agent, headers=key).json() == first.json()
    assert execute(agent, execution_id=str(uuid.uuid4()), headers=key).json()["code"] == "idempotency_mismatch"
    assert Execution.objects.count() == 1


def test_only_a_system_key_gets_in(execute: Any, agent: Agent, make_key: Any, owner: User, superuser: User) -> None:
    for who in (owner, superuser, make_key("user"), make_key("agent", agent=agent)):
        for answer in (execute(agent, by=who), execute("nobody", by=who), execute(agent, by=who, nonsense=1)):
            assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (403, "access_denied", "Access denied")
    answer = execute(agent, by=None)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert not Execution.objects.exists()


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"agent_name": None}, "agent_name is required"),
        ({"triggered_by": None}, "triggered_by is required"),
        ({"triggered_by": "chat"}, "triggered_by must be one of manual, agent, mcp, schedule"),
        ({"triggered_by": "approval"}, "triggered_by must be one of manual, agent, mcp, schedule"),
        ({"triggered_by": ["schedule"]}, "triggered_by must be one of manual, agent, mcp, schedule"),
        ({"execution_id": "mine"}, "execution_id must be a UUID"),
        ({"execution_id": 1}, "execution_id must be a UUID"),
        ({"timeout_seconds": 7201}, "timeout_seconds must be an integer between 1 and 7200"),
        ({"message": ""}, "message must be text of 1 to 100000 characters"),
    ],
)
def test_a_wrong_field_is_named(execute: Any, agent: Agent, body: dict[str, Any], detail: str) -> None:
    answer = execute(agent, **body)
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)
    assert not Execution.objects.exists()


@pytest.mark.parametrize("name", ["nobody", "ümläut", "a" * 63, "../x", "UPPER"])
def test_an_unknown_agent_is_not_found(execute: Any, name: str) -> None:
    answer = execute(name)
    assert (answer.status_code, answer.json()["code"]) == (404, "agent_not_found")


def test_hostile_bodies_never_break(api: Api, make_key: Any, superuser: User) -> None:
    client = api(make_key("system", owner=superuser))
    bodies = ("", "[]", "null", "{", '{"message": NaN}', "[" * 100_000, '{"agent_name": "a\\u0000"}', '{"message": "\\ud800"}')
    assert [client.generic("POST", PATH, body, content_type="application/json").status_code for body in bodies] == [400] * len(bodies)
    assert client.post(f"{PATH}/?a=1", {}, format="json").json()["code"] == "unknown_parameter"
    assert client.get(PATH).status_code == 405


def test_paused_and_without_the_store(execute: Any, make_agent: Any, store_out_of_reach: Any) -> None:
    paused = make_agent(paused=True)
    assert execute(paused, async_mode=None).json()["code"] == "agent_paused"
    assert execute(paused).json()["status"] == "queued"
    assert Execution.objects.get().status == Status.QUEUED
    store_out_of_reach(True)
    answer = execute(make_agent())
    assert (answer.status_code, answer.json()["code"]) == (503, "slots_unavailable")
