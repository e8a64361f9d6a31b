"""Changing an agent: what is merged, what stays, and what starts."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from backlog.models import Execution, Status
from fleet.models import Agent, AuditEntry, Share

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

HTTP = {"kind": "http", "url": "http://127.0.0.1:9000", "headers": {"Authorization": "hush", "X-Team": "blue"}}
SHOWN = {"kind": "http", "url": "http://127.0.0.1:9000", "headers": {"Authorization": None, "X-Team": None}}


@pytest.fixture
def served(make_agent: Callable[..., Agent]) -> Agent:
    """An HTTP agent with secrets."""
    return make_agent(name="served", limit=1, runtime=HTTP)


@pytest.fixture
def patch(api: Any, owner: User, served: Agent) -> Callable[..., Any]:
    """Changes `served`, or another agent: `patch({…}, by=…, to=…, headers=…)`."""

    def send(body: Any, *, by: User | str = owner, to: Agent = served, headers: dict[str, str] | None = None) -> Any:
        return api(by).patch(f"/api/agents/{to.name}/", body, format="json", headers=headers)

    return send


def stored(agent: Agent) -> Agent:
    """As it is now."""
    return Agent.objects.get(pk=agent.pk)


def told(answer: Any) -> tuple[int, str, str]:
    """The problem."""
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


def test_what_is_sent_is_changed_and_the_rest_stays(patch: Any, served: Agent, api: Any, owner: User) -> None:
    answer = patch({"description": " as sent "})
    assert answer.status_code == 200
    assert {name: answer.json()[name] for name in ("description", "owner", "runtime", "max_parallel_tasks")} == {
        "description": " as sent ", "owner": "olga", "runtime": SHOWN, "max_parallel_tasks": 1,
    }  # fmt: skip
    assert answer["ETag"] == '"2"' == api(owner).get("/api/agents/served/")["ETag"]
    assert patch({}).json() == answer.json() == patch({"description": " as sent "}).json()
    assert stored(served).settings_version == 2
    assert stored(served).changed_at is None


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ({"url": "http://127.0.0.1:9001"}, HTTP | {"url": "http://127.0.0.1:9001"}),
        ({"headers": {"X-Team": "red"}}, HTTP | {"headers": {"Authorization": "hush", "X-Team": "red"}}),
        ({"headers": {"authorization": "new"}}, HTTP | {"headers": {"X-Team": "blue", "authorization": "new"}}),
        ({"headers": {"Authorization": None}}, HTTP | {"headers": {"X-Team": "blue"}}),
        ({"headers": {"Nobody": None}}, HTTP),
        ({"headers": None}, {"kind": "http", "url": HTTP["url"]}),
        ({"kind": "http", "headers": {"Authorization": None, "X-Team": None}}, {"kind": "http", "url": HTTP["url"]}),
        ({}, HTTP),
    ],
)
def test_secrets_left_out_stay_and_null_removes_them(patch: Any, served: Agent, runtime: Any, expected: dict[str, Any]) -> None:
    answer = patch({"runtime": runtime})
    assert answer.status_code == 200
    assert {"kind": "http", **stored(served).runtime} == expected
    assert "hush" not in answer.content.decode()
    assert "hush" not in str(list(AuditEntry.objects.values_list("before", "after")))


@pytest.mark.parametrize(
    ("runtime", "detail"),
    [
        ({"url": None}, "runtime.url is required"),
        ({"url": "ftp://x"}, "runtime.url must be an http or https URL without user name, query or fragment"),
        ({"kind": "carrier-pigeon"}, "runtime.kind must be one of http, command"),
        ({"kind": "command"}, "runtime.argv is required"),
        ({"headers": {"Host": "x"}}, "runtime.headers must not have the name 'Host'"),
        ({"headers": "x"}, "runtime.headers must be an object of at most 100 texts"),
        ([], "runtime must be an object"),
        (None, "runtime must be an object"),
    ],
)
def test_what_makes_no_runtime_is_refused_and_changes_nothing(patch: Any, served: Agent, runtime: Any, detail: str) -> None:
    answer = patch({"runtime": runtime, "description": "new"})
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)
    assert (stored(served).description, stored(served).settings_version) == ("", 1)
    assert not AuditEntry.objects.exists()


def test_a_runtime_may_become_another_kind_and_keeps_nothing_of_the_former(
    patch: Any, served: Agent, superuser: User, post_task: Any
) -> None:
    command = {"kind": "command", "argv": ["cat"]}
    assert told(patch({"runtime": command})) == (403, "access_denied", "Only superusers can configure command runtimes")
    answer = patch({"runtime": command | {"env": {"TOKEN": "hush"}}}, by=superuser)
    assert answer.json()["runtime"] == command | {"env": {"TOKEN": None}}
    # Its owner may change what is no command, and go back, but not the command.
    assert patch({"description": "mine still"}).status_code == 200
    assert told(patch({"runtime": {"argv": ["sh"]}}))[1] == "access_denied"
    assert patch({"runtime": {"kind": "http", "url": "http://127.0.0.1:1"}}).status_code == 200
    assert (stored(served).runtime_kind, stored(served).runtime) == ("http", {"url": "http://127.0.0.1:1"})


def test_an_agent_is_handed_on(patch: Any, served: Agent, api: Any, owner: User, stranger: User) -> None:
    detail = "owner must be the user name of an active user"
    assert told(patch({"owner": "nobody"})) == (400, "invalid", detail)
    User.objects.filter(pk=stranger.pk).update(is_active=False)
    assert told(patch({"owner": "sten"}))[2] == detail
    User.objects.filter(pk=stranger.pk).update(is_active=True)
    assert patch({"owner": "sten"}).json()["owner"] == "sten"
    assert api(owner).get("/api/agents/served/").json()["code"] == "access_denied"
    assert patch({"description": "mine"}, by=stranger).status_code == 200
    assert list(AuditEntry.objects.order_by("id").values_list("action", "before", "after")) == [
        ("owner", "olga", "sten"),
        ("description", "", "mine"),
    ]


def test_a_raise_starts_what_waits_and_a_cut_kills_nothing(patch: Any, served: Agent, post_task: Any) -> None:
    for _ in range(5):
        post_task(to=served)

    def running() -> int:
        return Execution.objects.filter(status=Status.RUNNING).count()

    assert running() == 1
    assert patch({"max_parallel_tasks": 3, "max_backlog_depth": 9}).json()["max_parallel_tasks"] == 3
    assert running() == 3
    patch({"max_parallel_tasks": 1})
    post_task(to=served)
    assert running() == 3
    assert (stored(served).max_backlog_depth, stored(served).changed_by.username) == (9, "olga")
    assert AuditEntry.objects.filter(action="max_parallel_tasks").count() == 2


def test_several_changes_are_one_step_of_the_version(patch: Any, served: Agent) -> None:
    body = {"description": "d", "runtime": {"url": "http://127.0.0.1:9001"}, "max_parallel_tasks": 4}
    assert patch(body, headers={"If-Match": '"1"'})["ETag"] == '"2"'
    assert AuditEntry.objects.count() == 3
    assert told(patch({"description": "late"}, headers={"If-Match": '"1"'})) == (
        412, "precondition_failed", "The settings changed since you read them",
    )  # fmt: skip
    assert stored(served).description == "d"


def test_only_known_fields_are_taken(patch: Any, served: Agent) -> None:
    for name in ("name", "paused", "created_at", "settings_version"):
        status, code, detail = told(patch({name: "x"}))
        assert (status, code) == (400, "unknown_field")
        assert detail == (
            f"Unknown field '{name}'; the valid fields are "
            "description, owner, runtime, max_parallel_tasks, max_backlog_depth, execution_timeout_seconds"
        )
    assert told(patch([]))[1] == "invalid_body"
    assert told(patch({"max_parallel_tasks": 11}))[2] == "max_parallel_tasks must be an integer between 1 and 10"
    assert told(patch({"max_parallel_tasks": None}))[1] == "invalid"
    assert told(patch({"description": None}))[0] == 400
    assert told(patch({"owner": "a\x00b"}))[0] == 400


def test_with_an_agent_go_no_keys_of_who_had_it(
    patch: Any, served: Agent, api: Any, owner: User, stranger: User, make_agent: Callable[..., Agent], make_key: Callable[..., str]
) -> None:
    make_agent(name="kept")
    key, own = make_key("agent", agent=served), make_key("user")
    assert api(key).get("/api/agents/kept/").status_code == 200
    patch({"owner": "olga"})
    assert api(key).get("/api/agents/served/").status_code == 200
    # A new owner's own key for it, from when it was theirs before.
    Agent.objects.filter(pk=served.pk).update(owner=stranger)
    theirs = make_key("agent", agent=Agent.objects.get(pk=served.pk), owner=stranger)
    Agent.objects.filter(pk=served.pk).update(owner=owner)
    patch({"owner": "sten"})
    # Its server is another's now: it reaches what is theirs, and nothing of the former owner's.
    assert api(key).get("/api/agents/kept/").json()["code"] == "invalid_token"
    assert api(own).get("/api/agents/served/").json()["code"] == "access_denied"
    assert api(theirs).get("/api/agents/served/").status_code == 200


def test_changing_is_the_owners(patch: Any, stranger: User, superuser: User, served: Agent, make_key: Callable[..., str]) -> None:
    assert told(patch({"description": "x"}, by=stranger))[1] == "access_denied"
    Share.objects.create(agent=served, user=stranger)
    assert told(patch({"nonsense": 1}, by=stranger)) == (403, "owner_required", "Only the agent's owner can do this")
    for key in (make_key("agent", agent=served), make_key("system", owner=superuser)):
        assert told(patch({"description": "x"}, by=key))[1] == "person_required"
    assert patch({"description": "x"}, by=superuser).status_code == 200
    assert patch({"description": "y"}, by=make_key("user")).status_code == 200
