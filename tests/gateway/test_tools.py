"""The tools themselves, as they are called on a thread: arguments, rights, bodies and refusals are those of REST."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from jsonschema import Draft202012Validator
from rest_framework.test import APIClient

from backlog.models import Execution, Trigger
from core.asgi import Answer, Hold
from fleet.models import Agent, AuditEntry, Share
from fleet.principals import Principal
from fleet.services import create_key
from gateway.calls import Result, begin, end
from gateway.catalogue import TOOLS, shown_to
from runtime.serializers.capacity import CapacityIn
from runtime.serializers.tasks import TaskIn
from runtime.services import runs
from tests.architecture.who_may import CANCEL, CHANGE, DEAD, READ, SIGNED_IN, SUBMIT, WHO

pytestmark = [pytest.mark.flows, pytest.mark.django_db]

Api = Callable[[User | str | None], APIClient]
Call = Callable[..., Result]


def outcome(tool: str, by: User | Principal, arguments: Any) -> Result | Hold:
    principal = by if isinstance(by, Principal) else Principal.of_user(by)
    return begin(TOOLS[tool], principal, arguments)


@pytest.fixture
def call(owner: User, valkey: object) -> Call:
    """`call("tool", by=user or principal, **arguments)`: the result; of one that waits, as if its time had run out."""

    def make(tool: str, *, by: User | Principal = owner, **arguments: Any) -> Result:
        begun = outcome(tool, by, arguments)
        result = end(begun, timed_out=True) if isinstance(begun, Hold) else begun
        assert json.loads(result.text) == result.body
        if not result.refused:
            Draft202012Validator(TOOLS[tool].output_schema).validate(result.body)
        return result

    return make


def key_of(scope: str, *, owner: User, agent: Agent | None = None) -> Principal:
    return Principal.of_key(create_key(owner=owner, scope=scope, name="tests", agent=agent).row)


def carry(execution_id: str) -> Execution:
    row = Execution.objects.get(pk=execution_id)
    runs.run_execution(execution_id=row.pk, token=row.slot_token)
    return Execution.objects.get(pk=execution_id)


def refusal(result: Result) -> tuple[int, str]:
    assert result.refused
    assert result.body["detail"]
    return result.body["status"], result.body["code"]


# -- What there is -----------------------------------------------------------------------------------------------------
def test_every_tool_has_its_place_in_the_catalogue() -> None:
    assert list(TOOLS) == [
        "list_agents", "get_capacity", "submit_task", "get_execution", "cancel_execution", "list_queue", "set_capacity",
    ]  # fmt: skip


def test_hints_say_what_a_client_may_do_without_asking() -> None:
    hints = {name: (tool.read_only, tool.destructive, tool.idempotent, tool.open_world) for name, tool in TOOLS.items()}
    assert {name for name, hint in hints.items() if hint == (True, False, True, False)} == {
        "list_agents", "get_capacity", "get_execution", "list_queue",
    }  # fmt: skip
    assert hints["submit_task"] == (False, False, False, True)
    assert hints["cancel_execution"] == hints["set_capacity"] == (False, True, True, False)


def test_only_people_are_shown_what_only_people_may(owner: User, superuser: User, agent: Agent) -> None:
    assert [tool.name for tool in shown_to(Principal.of_user(owner))] == list(TOOLS)
    assert key_of("user", owner=owner).is_person
    for key in (key_of("agent", owner=owner, agent=agent), key_of("system", owner=superuser)):
        assert {tool.name for tool in shown_to(key)} == set(TOOLS) - {"set_capacity"}


# -- Schemas -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", TOOLS)
def test_schemas_are_whole_and_of_objects(name: str) -> None:
    for schema in (TOOLS[name].input_schema, TOOLS[name].output_schema):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        said = json.dumps(schema)
        assert "components/schemas" not in said
        assert "x-spec" not in said
    assert TOOLS[name].input_schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("name", "body", "beside"),
    [("submit_task", TaskIn, {"agent_name", "idempotency_key"}), ("set_capacity", CapacityIn, {"agent_name"})],
)
def test_arguments_are_the_rest_bodys_fields_and_what_rest_has_beside_them(name: str, body: Any, beside: set[str]) -> None:
    schema = TOOLS[name].input_schema
    assert set(schema["properties"]) == set(body().fields) | beside
    assert set(schema["required"]) == {field for field, one in body().fields.items() if one.required} | {"agent_name"}


def test_the_result_of_a_submit_is_an_execution_or_its_acceptance() -> None:
    schema = Draft202012Validator(TOOLS["submit_task"].output_schema)
    assert schema.is_valid({"status": "accepted", "execution_id": "x", "agent_name": "a", "async_mode": True})
    assert not schema.is_valid({"status": "accepted"})


# -- The same answers as REST ------------------------------------------------------------------------------------------
def test_agents_are_listed_as_over_rest_a_page_at_a_time(
    call: Call, api: Api, owner: User, stranger: User, make_agent: Callable[..., Agent]
) -> None:
    for name in ("a", "b", "c"):
        make_agent(name=name)
    make_agent(name="d", owner=stranger)
    first = call("list_agents", limit=2).body
    assert first["results"] == api(owner).get("/api/agents/?limit=2").json()["results"]
    second = call("list_agents", limit=2, cursor=first["next"]).body
    assert ([one["name"] for one in second["results"]], second["next"]) == (["c"], None)
    assert refusal(call("list_agents", cursor="spoilt")) == (400, "invalid")
    assert refusal(call("list_agents", limit=201)) == (400, "invalid")


def test_capacity_and_line_are_shown_as_over_rest(call: Call, api: Api, owner: User, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1)
    for number in range(3):
        call("submit_task", agent_name=agent.name, message=f"task {number}", async_mode=True)
    capacity, shown = call("get_capacity", agent_name=agent.name).body, api(owner).get(f"/api/agents/{agent.name}/capacity").json()
    for body in (capacity, shown):
        del body["slots"][0]["duration_seconds"]
    assert capacity == shown
    assert (capacity["active_slots"], capacity["queued"]) == (1, 2)
    line, shown = call("list_queue", agent_name=agent.name, limit=1).body, api(owner).get(f"/api/agents/{agent.name}/queue/?limit=1").json()
    following, _link = line.pop("next"), shown.pop("next")
    assert line == shown
    assert line["results"][0]["waiting_for"] == "slot"
    rest = call("list_queue", agent_name=agent.name, cursor=following).body
    assert ([one["queue_position"] for one in rest["results"]], rest["next"]) == ([2], None)


def test_a_task_is_submitted_waited_for_and_read_as_over_rest(call: Call, api: Api, owner: User, agent: Agent) -> None:
    taken = call("submit_task", agent_name=agent.name, message="hello", async_mode=True, metadata={"a": [1]}).body
    assert taken == {"status": "accepted", "execution_id": taken["execution_id"], "agent_name": agent.name, "async_mode": True}
    row = carry(taken["execution_id"])
    assert (row.triggered_by, row.source_name, row.metadata) == (Trigger.MCP, "olga", {"a": [1]})
    assert call("get_execution", execution_id=str(row.pk)).body == api(owner).get(f"/api/executions/{row.pk}/").json()


def test_without_async_mode_the_call_waits_twice_the_runs_limit_for_its_result(owner: User, agent: Agent, valkey: object) -> None:
    arguments = {"agent_name": agent.name, "message": "hello", "timeout_seconds": 30}
    held = outcome("submit_task", owner, arguments)
    assert isinstance(held, Hold)
    assert held.seconds == 60
    late = end(held, timed_out=True)
    assert (refusal(late), late.body["execution_id"]) == ((504, "wait_timeout"), held.key)
    carry(held.key)
    done = end(held, timed_out=False)
    assert not done.refused, done.body
    assert (done.body["status"], done.body["response"]) == ("success", "hello")


def test_an_execution_is_waited_for_only_while_it_has_not_ended(owner: User, agent: Agent, call: Call) -> None:
    execution_id = call("submit_task", agent_name=agent.name, message="hello", async_mode=True).body["execution_id"]
    held = outcome("get_execution", owner, {"execution_id": execution_id, "wait": 30})
    assert isinstance(held, Hold)
    assert (held.key, held.seconds) == (execution_id, 30)
    assert end(held, timed_out=True).body["status"] == "running"
    carry(execution_id)
    assert isinstance(outcome("get_execution", owner, {"execution_id": execution_id, "wait": 30}), Result)


def test_a_failed_run_is_its_error_and_a_cancel_answers_as_over_rest(call: Call, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1, runtime={"kind": "command", "argv": ["false"]})
    failing = call("submit_task", agent_name=agent.name, message="hello", idempotency_key="one")
    assert refusal(failing) == (504, "wait_timeout")
    waiting = call("submit_task", agent_name=agent.name, message="next", async_mode=True).body
    assert (waiting["status"], waiting["queue_position"]) == ("queued", 1)
    assert call("cancel_execution", execution_id=waiting["execution_id"]).body == {"status": "cancelled"}
    assert call("cancel_execution", execution_id=waiting["execution_id"]).body == {"status": "cancelled"}
    carry(failing.body["execution_id"])
    assert refusal(call("cancel_execution", execution_id=failing.body["execution_id"])) == (409, "already_finished")
    again = call("submit_task", agent_name=agent.name, message="hello", idempotency_key="one")
    assert (refusal(again), again.replayed) == ((502, "agent_error"), True)


def test_a_key_is_one_whether_it_comes_by_rest_or_here(call: Call, api: Api, owner: User, agent: Agent) -> None:
    first = call("submit_task", agent_name=agent.name, message="hello", async_mode=True, idempotency_key='"k"')
    headers = {"Idempotency-Key": "k"}
    rest = api(owner).post(f"/api/agents/{agent.name}/task", {"message": "hello", "async_mode": True}, format="json", headers=headers)
    assert (rest.json(), rest["Idempotent-Replayed"]) == (first.body, "true")
    again = call("submit_task", agent_name=agent.name, message="hello", async_mode=True, idempotency_key="k")
    assert (again.body, again.replayed, first.replayed) == (first.body, True, False)
    other = call("submit_task", agent_name=agent.name, message="another", async_mode=True, idempotency_key="k")
    assert refusal(other) == (422, "idempotency_mismatch")
    for malformed in ("", "a b", "ü", "x" * 256):
        bad = call("submit_task", agent_name=agent.name, message="hello", idempotency_key=malformed)
        assert refusal(bad) == (400, "idempotency_malformed")


def test_a_limit_is_changed_with_its_audit_row(call: Call, agent: Agent, owner: User) -> None:
    until = (timezone.now() + timedelta(days=1)).replace(microsecond=0)
    changed = call("set_capacity", agent_name=agent.name, max_parallel_tasks=5, override_until=until.isoformat())
    told = until.isoformat().replace("+00:00", "Z")
    assert changed.body == {"message": "Capacity updated", "agent_name": agent.name, "max_parallel_tasks": 5, "override_until": told}
    assert AuditEntry.objects.filter(agent=agent, actor=owner).exists()


# -- Refusals ----------------------------------------------------------------------------------------------------------
#: As tests/architecture/who_may.py has it for REST: a right says what those are told who may not.
RIGHTS = {
    "list_agents": SIGNED_IN,
    "get_capacity": READ,
    "submit_task": SUBMIT,
    "get_execution": READ,
    "cancel_execution": CANCEL,
    "list_queue": READ,
    "set_capacity": CHANGE,
}
ALIVE = [who for who in WHO if who not in {"nobody", *DEAD} and "browser" not in who]


def test_every_tool_tells_every_caller_what_rest_would(
    call: Call, owner: User, stranger: User, superuser: User, make_agent: Callable[..., Agent]
) -> None:
    friend = User.objects.create_user("frida")
    agent, sister, strangers = make_agent(limit=9), make_agent(), make_agent(owner=stranger)
    Share.objects.create(agent=agent, user=friend)
    callers = {
        "owner": Principal.of_user(owner),
        "owner's key": key_of("user", owner=owner),
        "friend": Principal.of_user(friend),
        "friend's key": key_of("user", owner=friend),
        "stranger": Principal.of_user(stranger),
        "stranger's key": key_of("user", owner=stranger),
        "agent's key": key_of("agent", owner=owner, agent=agent),
        "sister agent's key": key_of("agent", owner=owner, agent=sister),
        "stranger's agent's key": key_of("agent", owner=stranger, agent=strangers),
        "system key": key_of("system", owner=superuser),
        "superuser": Principal.of_user(superuser),
        "superuser's key": key_of("user", owner=superuser),
    }
    assert set(callers) == set(ALIVE)
    assert set(RIGHTS) == set(TOOLS), "a new tool wants a row"
    task = {"agent_name": agent.name, "message": "hello", "async_mode": True}
    execution = {"execution_id": call("submit_task", by=callers["friend"], **task).body["execution_id"]}
    named = {"agent_name": agent.name}
    arguments = {"list_agents": {}, "submit_task": task, "get_execution": execution, "cancel_execution": execution}
    arguments |= {"set_capacity": named | {"max_parallel_tasks": 9}}
    for tool, right in RIGHTS.items():
        for who in sorted(ALIVE, key=lambda name: name not in right):  # those refused first: a cancel is made but once
            result = call(tool, by=callers[who], **arguments.get(tool, named))
            if who in right:
                assert refusal(result) == right[who], (tool, who)
            else:
                assert not result.refused, (tool, who, result.body)
    assert call("list_agents", by=callers["stranger"]).body["results"][0]["name"] == strangers.name


def test_who_submits_is_kept_and_the_way_in_is_mcp(call: Call, owner: User, agent: Agent) -> None:
    key = key_of("agent", owner=owner, agent=agent)
    taken = call("submit_task", by=key, agent_name=agent.name, message="hello", async_mode=True).body
    row = Execution.objects.get(pk=taken["execution_id"])
    assert (row.triggered_by, row.source_kind, row.source_name, row.submitted_key_id) == ("mcp", "agent", agent.name, key.key.pk)


def test_a_refusal_at_capacity_says_when_to_come_again(call: Call, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1)
    call("submit_task", agent_name=agent.name, message="first", async_mode=True)
    full = call("submit_task", agent_name=agent.name, message="second")
    assert refusal(full) == (429, "at_capacity")
    assert (full.body["active_slots"], full.body["max_parallel_tasks"], full.body["queued"]) == (1, 1, 0)
    assert full.body["detail"] == f"Agent '{agent.name}' is at capacity (1 parallel tasks). Try again later."
    assert 1 <= full.body["retry_after"] <= 360
    assert Execution.objects.count() == 1


def test_without_the_slot_store_a_call_is_refused_and_leaves_nothing(
    call: Call, agent: Agent, store_out_of_reach: Callable[[bool], None]
) -> None:
    store_out_of_reach(True)
    result = call("submit_task", agent_name=agent.name, message="hello", async_mode=True)
    assert (refusal(result), result.body["detail"]) == ((503, "slots_unavailable"), "Slot store unavailable")
    assert result.body["retry_after"] >= 1
    assert not Execution.objects.exists()


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("submit_task", {"agent_name": "a"}, "message is required"),
        ("submit_task", {"message": "x"}, "agent_name is required"),
        ("submit_task", {"agent_name": "a", "message": " \n"}, "message must not be blank"),
        ("submit_task", {"agent_name": "a", "message": "x", "priority": True}, "priority must be an integer between 0 and 9"),
        ("submit_task", {"agent_name": "a", "message": "a\0b"}, "message must not contain NUL characters"),
        ("submit_task", {"agent_name": "a", "message": "a\ud800"}, "message must not contain lone surrogates"),
        ("submit_task", {"agent_name": "a\0", "message": "x"}, "agent_name must not contain NUL characters"),
        ("get_execution", {"execution_id": "1"}, "execution_id must be a UUID"),
        ("get_execution", {}, "execution_id is required"),
        ("get_execution", {"execution_id": "0" * 8, "wait": "5"}, "execution_id must be a UUID"),
        ("list_queue", {"agent_name": 5}, "agent_name must be text, not empty"),
        ("list_queue", {"agent_name": None}, "agent_name is required"),
        ("list_agents", {"limit": 5.0}, "limit must be an integer between 1 and 200"),
        ("list_agents", {"limit": 10**30}, "limit must be an integer between 1 and 200"),
        ("list_agents", {"page": 1}, "Unknown field 'page'; the valid fields are limit, cursor"),
        ("set_capacity", {"agent_name": "a"}, "max_parallel_tasks is required"),
        ("set_capacity", {"agent_name": "a", "max_parallel_tasks": 11}, "max_parallel_tasks must be an integer between 1 and 10"),
    ],
)  # fmt: skip
def test_bad_arguments_are_told_in_the_sentences_of_rest(call: Call, tool: str, arguments: Any, sentence: str) -> None:
    result = call(tool, **arguments)
    assert result.body["status"] == 400
    assert result.body["detail"] == sentence
    assert result.body["errors"][0]["pointer"].startswith("/")


def test_what_nobody_foresaw_tells_nothing(owner: User) -> None:
    def broken(*_: object) -> Answer:
        raise LookupError("a secret")

    result = begin(replace(TOOLS["list_agents"], run=broken), Principal.of_user(owner), {})
    assert isinstance(result, Result)
    assert (refusal(result), "secret" in result.text) == ((500, "internal"), False)
