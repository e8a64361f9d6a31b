"""Who changed what, from what to what: told of every way to change something, and never a secret with it."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from capacity.manager import CapacityManager
from fleet import services
from fleet.models import Agent, AuditEntry
from fleet.principals import Principal

pytestmark = pytest.mark.usefixtures("valkey")

Api = Callable[[User | str | None], APIClient]
SECRETS = ("hush-header", "hush-env", "hush-key", "hush-again")


@pytest.fixture
def told(api: Api, superuser: User) -> Callable[..., list[tuple[Any, ...]]]:
    """What the audit tells, the oldest first: `told("name")` of one agent, `told()` of the fleet."""

    def read(name: str | None = None) -> list[tuple[Any, ...]]:
        body = api(superuser).get("/api/audit/" if name is None else f"/api/agents/{name}/audit/").json()
        assert (body["next"], body["previous"]) == (None, None)
        return [(entry["actor"], entry["action"], entry["from"], entry["to"]) for entry in reversed(body["results"])]

    return read


# -- What is told ----------------------------------------------------------------------------------------------------
def test_an_agents_whole_life_is_told(
    api: Api, owner: User, stranger: User, superuser: User, told: Any, django_capture_on_commit_callbacks: Any
) -> None:
    mine, name = api(owner), "probe"
    runtime = {"kind": "http", "url": "http://127.0.0.1:9000", "headers": {"Authorization": "hush-header"}}
    made = mine.post("/api/agents/", {"name": name, "runtime": runtime, "max_backlog_depth": 7}, format="json")
    assert made.status_code == 201
    agent = Agent.objects.get(name=name)
    key = services.create_key(owner=owner, scope="agent", name="ci", agent=agent, principal=Principal.of_user(owner))
    other = services.create_key(owner=owner, scope="agent", name="bot", agent=agent)
    services.revoke_key(principal=Principal.of_user(owner), key=key.row)
    services.revoke_key(principal=Principal.of_user(owner), key=key.row)
    path = f"/api/agents/{name}"
    waiting = [mine.post(f"{path}/task", {"message": "m", "async_mode": True}, format="json").json()["execution_id"] for _ in range(5)]
    for method, url, body in (
        ("put", f"{path}/capacity", {"max_parallel_tasks": 5, "execution_timeout_seconds": 60}),
        ("patch", f"{path}/", {"description": "Probes", "max_parallel_tasks": 3}),
        ("patch", f"{path}/", {"runtime": {"headers": {"Authorization": "hush-again"}}}),
        ("patch", f"{path}/", {"description": "Probes"}),
        ("post", f"{path}/pause/", {}),
        ("post", f"{path}/slots/release/", {"execution_id": waiting[0]}),
        ("post", f"{path}/resume/", {}),
        ("patch", f"{path}/", {"owner": "sten"}),
    ):
        assert getattr(mine, method)(url, body, format="json").status_code == 200, (method, url, body)
    assert api(superuser).delete(f"{path}/").status_code == 204
    shown = {"kind": "http", "url": "http://127.0.0.1:9000", "headers": {"Authorization": None}}
    key_told, other_told = ({"name": one.row.name, "scope": "agent", "prefix": one.row.prefix, "owner": "olga"} for one in (key, other))
    limits = {"max_parallel_tasks": 3, "max_backlog_depth": 7, "execution_timeout_seconds": 900}
    assert told() == [
        ("olga", "created", None, {"runtime": shown, **limits}),
        ("olga", "key_made", None, key_told),
        ("system", "key_made", None, other_told),
        ("olga", "key_revoked", key_told, None),
        ("olga", "max_parallel_tasks", 3, 5),
        ("olga", "execution_timeout_seconds", 900, 60),
        ("olga", "max_parallel_tasks", 5, 3),
        ("olga", "description", "", "Probes"),
        ("olga", "runtime", shown, shown),
        ("olga", "paused", False, True),
        ("olga", "slot_released", None, {"execution_id": waiting[0], "force": False}),
        ("olga", "paused", True, False),
        ("olga", "key_revoked", other_told, None),
        ("olga", "owner", "olga", "sten"),
        ("root", "deleted", False, True),
    ]
    assert {entry.agent for entry in AuditEntry.objects.all()} == {agent}


def test_the_fleets_settings_are_told_without_an_agent(api: Api, superuser: User, agent: Agent) -> None:
    root = api(superuser)
    root.put("/api/settings/max-parallel-tasks-ceiling", {"value": 4}, format="json")
    root.put("/api/settings/max-concurrent-tasks", {"value": 9}, format="json")
    root.post("/api/fleet/pause/", {}, format="json")
    root.put(f"/api/agents/{agent.name}/capacity", {"max_parallel_tasks": 2}, format="json")
    services.create_key(owner=superuser, scope="system", name="metrics", principal=Principal.of_user(superuser))
    body = root.get("/api/audit/").json()
    assert [(entry["agent_name"], entry["action"]) for entry in body["results"]] == [
        (None, "key_made"), (agent.name, "max_parallel_tasks"), (None, "fleet_paused"), (None, "max_concurrent_tasks"),
        (None, "max_parallel_tasks_ceiling"),
    ]  # fmt: skip
    assert set(body["results"][0]) == {"at", "actor", "agent_name", "action", "from", "to"}
    mine = root.get(f"/api/agents/{agent.name}/audit/").json()["results"]
    assert [set(entry) for entry in mine] == [{"at", "actor", "action", "from", "to"}]
    assert mine[0]["at"].endswith("Z")


def test_no_secret_is_ever_told(api: Api, superuser: User, told: Any) -> None:
    root = api(superuser)
    http = {"kind": "http", "url": "http://127.0.0.1:9000", "headers": {"X-Key": "hush-header"}}
    command = {"kind": "command", "argv": ["cat"], "env": {"TOKEN": "hush-env"}}
    runtimes = {
        "http": (http, {"headers": {"X-Key": "hush-again"}}),
        "command": (command, {"env": {"TOKEN": "hush-again", "MORE": "hush-env"}}),
    }
    for name, (runtime, patch) in runtimes.items():
        assert root.post("/api/agents/", {"name": name, "runtime": runtime}, format="json").status_code == 201
        assert root.patch(f"/api/agents/{name}/", {"runtime": patch}, format="json").status_code == 200
        assert root.patch(f"/api/agents/{name}/", {"runtime": runtimes["http"][0]}, format="json").status_code == 200
    llm = {"base_url": "http://127.0.0.1:9000", "model": "m", "api_key": "hush-key"}
    Agent.objects.create(name="llm", owner=superuser, runtime_kind="llm", runtime=llm)
    assert root.patch("/api/agents/llm/", {"runtime": runtimes["http"][0]}, format="json").status_code == 200
    key = services.create_key(owner=superuser, scope="user", name="own", principal=Principal.of_user(superuser))
    services.revoke_key(principal=Principal.of_user(superuser), key=key.row)
    everything = str(list(AuditEntry.objects.values())) + str(told()) + "".join(str(told(name)) for name in runtimes)
    assert AuditEntry.objects.filter(action="runtime").count() >= 5
    assert not [secret for secret in (*SECRETS, key.key, key.row.digest) if secret in everything]


def test_the_admin_and_the_api_tell_the_same(
    api: Api, owner: User, agent: Agent, told: Any, django_capture_on_commit_callbacks: Any
) -> None:
    CapacityManager().rebuild()
    browser = Client()
    browser.force_login(owner)
    form = {name: getattr(agent, name) for name in ("max_parallel_tasks", "max_backlog_depth", "execution_timeout_seconds")}
    seen = {f"initial-{name}": value for name, value in form.items()}
    with django_capture_on_commit_callbacks(execute=True):
        answer = browser.post(f"/admin/fleet/agent/{agent.pk}/change/", {**form, **seen, "max_parallel_tasks": 4, "seen_version": 1})
    assert answer.status_code == 302
    assert api(owner).put(f"/api/agents/{agent.name}/capacity", {"max_parallel_tasks": 5}, format="json").status_code == 200
    assert told(agent.name) == [("olga", "max_parallel_tasks", 3, 4), ("olga", "max_parallel_tasks", 4, 5)]


# -- To whom -----------------------------------------------------------------------------------------------------------
def test_an_agents_audit_is_its_owners_and_the_fleets_a_superusers(
    api: Api, owner: User, friend: User, stranger: User, superuser: User, agent: Agent, make_key: Callable[..., Any]
) -> None:
    person, denied = (403, "person_required"), (403, "access_denied")
    for who, of_agent, of_fleet in (
        (owner, (200, None), denied),
        (make_key(owner, "user").key, (200, None), denied),
        (superuser, (200, None), (200, None)),
        (friend, (403, "owner_required"), denied),
        (stranger, denied, denied),
        (make_key(owner, "agent", agent=agent).key, person, person),
        (make_key(superuser, "system").key, person, person),
        (None, (401, "not_authenticated"), (401, "not_authenticated")),
    ):
        for path, expected in ((f"/api/agents/{agent.name}/audit/", of_agent), ("/api/audit", of_fleet)):
            answer = api(who).get(path)
            assert (answer.status_code, answer.json().get("code")) == expected, (who, path)
    assert api(owner).get("/api/agents/nobody/audit/").status_code == 404


def test_the_lists_are_paged_and_know_no_other_parameters(api: Api, superuser: User, agent: Agent, valkey: redis.Redis) -> None:
    AuditEntry.objects.bulk_create(
        AuditEntry(actor_name="x", action="y", before=number, agent=agent if number % 2 else None) for number in range(7)
    )
    root, seen, url = api(superuser), [], "/api/audit/?limit=3"
    while url:
        body = root.get(url).json()
        seen += [entry["from"] for entry in body["results"]]
        url = body["next"]
    assert seen == [6, 5, 4, 3, 2, 1, 0]
    assert [entry["from"] for entry in root.get(f"/api/agents/{agent.name}/audit/?limit=2").json()["results"]] == [5, 3]
    for query in ("limit=0", "limit=201", "limit=x", "cursor=%00", "cursor=nonsense", "actor=x"):
        for path in ("/api/audit/", f"/api/agents/{agent.name}/audit/"):
            assert root.get(f"{path}?{query}").status_code == 400, query
    assert root.post("/api/audit/", {}, format="json").status_code == 405
