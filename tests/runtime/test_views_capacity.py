"""Limits and load over HTTP."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog.models import Execution, Status
from fleet.models import AuditEntry, FleetSettings, Share


@pytest.fixture
def put(api, owner, agent):
    """Sets the agent's capacity: `put({…}, by=…, to=…)`; text is sent as it is."""

    def write(body, *, by=owner, to=agent, headers=None):
        url = f"/api/agents/{to.name}/capacity"
        if isinstance(body, str):
            return api(by).generic("PUT", url, body, content_type="application/json")
        return api(by).put(url, body, format="json", headers=headers)

    return write


@pytest.fixture
def opened(post_task, make_agent):
    """The gate, open: a store that nothing was asked of yet must be filled first."""
    post_task(to=make_agent(name="opener"))


# -- One agent's -------------------------------------------------------------------------------------------------------
def test_an_agents_limits_and_load_are_shown(api, owner, post_task, make_agent):
    agent = make_agent(limit=2, depth=7)
    ids = [post_task("m" * 150, to=agent).json()["execution_id"] for _ in range(3)]
    answer = api(owner).get(f"/api/agents/{agent.name}/capacity")
    body = answer.json()
    slots = body.pop("slots")
    assert body == {
        "agent_name": agent.name, "max_parallel_tasks": 2, "ceiling": 10, "effective_max_parallel_tasks": 2, "active_slots": 2,
        "available_slots": 0, "queued": 1, "max_backlog_depth": 7, "execution_timeout_seconds": 900, "paused": False,
        "limited_by": "owner", "base_max_parallel_tasks": None, "override_until": None, "changed_by": None, "changed_at": None,
    }  # fmt: skip
    assert [(slot["slot_number"], slot["execution_id"]) for slot in slots] == [(1, ids[0]), (2, ids[1])]
    assert all(slot["message_preview"] == "m" * 100 and slot["started_at"].endswith("Z") for slot in slots)
    assert all(0 <= slot["duration_seconds"] < 60 for slot in slots)
    assert answer["ETag"] == '"1"'


def test_a_limit_below_what_runs_leaves_nothing_available_and_kills_nothing(api, owner, put, post_task, make_agent):
    agent = make_agent(limit=3)
    for _ in range(4):
        post_task(to=agent)
    assert put({"max_parallel_tasks": 1}, to=agent).status_code == 200
    body = api(owner).get(f"/api/agents/{agent.name}/capacity/").json()
    assert (body["active_slots"], body["available_slots"], body["queued"], body["limited_by"]) == (3, 0, 1, "owner")
    assert body["changed_by"] == "olga"


def test_a_raise_starts_what_waits(put, post_task, make_agent):
    agent = make_agent(limit=1)
    for _ in range(6):
        post_task(to=agent)
    put({"max_parallel_tasks": 5}, to=agent)
    assert Execution.objects.filter(agent=agent, status=Status.RUNNING).count() == 5


def test_the_ceiling_holds_a_stored_limit_down(api, owner, superuser, post_task, make_agent):
    agent = make_agent(limit=5)
    assert api(superuser).put("/api/settings/max-parallel-tasks-ceiling", {"value": 2}, format="json").status_code == 200
    statuses = [post_task(to=agent).json()["status"] for _ in range(4)]
    assert statuses == ["accepted", "accepted", "queued", "queued"]
    body = api(owner).get(f"/api/agents/{agent.name}/capacity").json()
    assert (body["max_parallel_tasks"], body["ceiling"], body["effective_max_parallel_tasks"]) == (5, 2, 2)
    assert body["limited_by"] == "ceiling"
    agent.refresh_from_db()
    assert agent.max_parallel_tasks == 5


@pytest.mark.parametrize("value", [0, -1, 11, 3.5, 5.0, "5", True, {}, [], 10**400])
def test_a_limit_that_is_none_is_refused_in_one_sentence(put, value):
    answer = put({"max_parallel_tasks": value})
    detail = "max_parallel_tasks must be an integer between 1 and 10"
    assert (answer.status_code, answer.json()["detail"], answer.json()["code"]) == (400, detail, "invalid")
    assert answer.json()["errors"] == [{"pointer": "/max_parallel_tasks", "code": "invalid", "detail": detail}]


@pytest.mark.parametrize("body", [{}, {"max_parallel_tasks": None}, {"max_backlog_depth": 5}])
def test_a_limit_is_required(put, body):
    answer = put(body)
    assert (answer.status_code, answer.json()["detail"], answer.json()["code"]) == (400, "max_parallel_tasks is required", "required")
    assert answer.json()["errors"][0]["pointer"] == "/max_parallel_tasks"


@pytest.mark.parametrize("body", ["[]", "5", "null", "not JSON", "", "{"])
def test_what_is_no_object_is_refused(put, body):
    answer = put(body)
    if body == "":
        assert answer.json()["detail"] == "max_parallel_tasks is required"
    else:
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_body")
        assert answer.json()["detail"] == "The request body must be a JSON object"


@pytest.mark.parametrize("value", [1, 10])
def test_the_bounds_themselves_are_taken_and_read_back(api, owner, put, agent, opened, value):
    answer = put({"max_parallel_tasks": value})
    assert (answer.status_code, answer.json()) == (
        200, {"message": "Capacity updated", "agent_name": agent.name, "max_parallel_tasks": value},
    )  # fmt: skip
    assert api(owner).get(f"/api/agents/{agent.name}/capacity").json()["max_parallel_tasks"] == value


def test_the_other_settings_are_told_back_where_they_were_sent(api, owner, put, agent, opened):
    body = {"max_parallel_tasks": 3, "max_backlog_depth": 0, "execution_timeout_seconds": 60}
    assert put(body).json() == {"message": "Capacity updated", "agent_name": agent.name, **body}
    assert put({"max_parallel_tasks": 4}).status_code == 200
    shown = api(owner).get(f"/api/agents/{agent.name}/capacity").json()
    assert (shown["max_backlog_depth"], shown["execution_timeout_seconds"]) == (0, 60)
    assert put({**body, "max_backlog_depth": 10_001}).json()["detail"] == "max_backlog_depth must be an integer between 0 and 10000"
    assert put({**body, "execution_timeout_seconds": 59}).json()["detail"] == (
        "execution_timeout_seconds must be an integer between 60 and 7200"
    )
    assert put({**body, "max_tasks": 1}).json()["code"] == "unknown_field"


def test_only_people_who_own_the_agent_change_its_limit(put, make_key, agent, stranger, superuser, owner):
    changes = AuditEntry.objects.filter(action="max_parallel_tasks")
    for key in (make_key("agent", agent=agent), make_key("system", owner=superuser)):
        answer = put({"max_parallel_tasks": 4}, by=key)
        assert (answer.status_code, answer.json()["code"]) == (403, "person_required")
        assert answer.json()["detail"] == "Only a person can do this; sign in or use your own user key"
    assert put({"max_parallel_tasks": 4}, by=stranger).json()["code"] == "access_denied"
    Share.objects.create(agent=agent, user=stranger)
    answer = put({}, by=stranger)
    assert (answer.status_code, answer.json()["code"]) == (403, "owner_required")
    assert answer.json()["detail"] == "Only owners can change capacity settings"
    assert not changes.exists()
    assert put({"max_parallel_tasks": 4}, by=make_key("user", owner=owner)).status_code == 200
    assert put({"max_parallel_tasks": 5}, by=superuser).status_code == 200
    assert [(entry.actor_name, entry.before, entry.after) for entry in changes.order_by("id")] == [
        ("olga", 3, 4),
        ("root", 4, 5),
    ]


def test_a_key_learns_nothing_of_agents_by_trying_to_change_them(api, make_key, agent):
    answer = api(make_key("agent", agent=agent)).put("/api/agents/nobody/capacity", {}, format="json")
    assert answer.json()["code"] == "person_required"


def test_a_change_of_settings_read_before_another_is_lost(api, owner, put, agent, opened):
    tag = api(owner).get(f"/api/agents/{agent.name}/capacity")["ETag"]
    first = put({"max_parallel_tasks": 4}, headers={"If-Match": tag})
    assert first.status_code == 200
    answer = put({"max_parallel_tasks": 5}, headers={"If-Match": tag})
    assert answer.status_code == 412
    assert answer.json()["detail"] == "The settings changed since you read them"
    assert put({"max_parallel_tasks": 5}, headers={"If-Match": "W/what"}).status_code == 412
    assert put({"max_parallel_tasks": 5}, headers={"If-Match": first["ETag"]}).status_code == 200
    assert put({"max_parallel_tasks": 6}, headers={"If-Match": "*"}).status_code == 200


def test_without_the_slot_store_load_is_unknown_never_none(api, owner, agent, opened, store_out_of_reach):
    store_out_of_reach(True)
    for url in (f"/api/agents/{agent.name}/capacity", "/api/agents/slots"):
        answer = api(owner).get(url)
        assert (answer.status_code, answer.json()["code"]) == (503, "slots_unavailable")
        assert int(answer["Retry-After"]) >= 1


# -- Every agent's -----------------------------------------------------------------------------------------------------
def test_every_visible_agents_load_is_an_object_by_name(api, owner, stranger, post_task, make_agent):
    agent, other = make_agent(limit=1), make_agent(limit=12, paused=True)
    for _ in range(3):
        assert post_task(to=agent).status_code == 202
    answer = api(owner).get("/api/agents/slots")
    body = answer.json()
    assert body["timestamp"].endswith("Z")
    versions = [meter.pop("version") for meter in body["agents"].values()]
    assert body["agents"] == {
        agent.name: {"max": 1, "active": 1, "queued": 2, "paused": False},
        other.name: {"max": 10, "active": 0, "queued": 0, "paused": True},
    }
    assert all(isinstance(version, int) for version in versions)
    assert answer["Cache-Control"] == "private"
    assert api(stranger).get("/api/agents/slots/").json()["agents"] == {}


def test_what_has_not_changed_is_not_sent_again(api, owner, post_task, make_agent):
    agent = make_agent(limit=1)
    post_task(to=agent)
    first = api(owner).get("/api/agents/slots")
    assert first["ETag"].startswith('W/"')
    for known in (first["ETag"], f'"x", {first["ETag"]}', first["ETag"].removeprefix("W/")):
        again = api(owner).get("/api/agents/slots", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    post_task(to=agent)
    changed = api(owner).get("/api/agents/slots", headers={"If-None-Match": first["ETag"]})
    assert changed.status_code == 200
    assert changed["ETag"] != first["ETag"]


def test_the_loads_of_many_agents_cost_as_many_queries_as_of_one(api, owner, opened, make_agent):
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api(owner).get("/api/agents/slots").status_code == 200
        return len(captured)

    few = queries()
    for _ in range(10):
        make_agent()
    assert queries() == few


# -- The ceiling -------------------------------------------------------------------------------------------------------
def test_everybody_reads_the_ceiling_and_superusers_set_it(api, stranger, superuser, make_key, valkey):
    url = "/api/settings/max-parallel-tasks-ceiling"
    assert api(stranger).get(url).json() == {"value": 10, "default": 10, "min": 1, "max": 32}
    answer = api(superuser).put(f"{url}/", {"value": 32}, format="json")
    assert (answer.status_code, answer.json()) == (200, {"value": 32, "default": 10, "min": 1, "max": 32})
    assert api(stranger).put(url, {"value": 1}, format="json").json()["code"] == "access_denied"
    assert api(make_key("system", owner=superuser)).put(url, {"value": 1}, format="json").json()["code"] == "person_required"
    assert FleetSettings.objects.get().max_parallel_tasks_ceiling == 32


@pytest.mark.parametrize("value", [0, 33, "5", True, 5.0, []])
def test_a_ceiling_out_of_its_bounds_is_refused(api, superuser, value):
    answer = api(superuser).put("/api/settings/max-parallel-tasks-ceiling", {"value": value}, format="json")
    assert (answer.status_code, answer.json()["detail"]) == (400, "value must be an integer between 1 and 32")
    answer = api(superuser).put("/api/settings/max-parallel-tasks-ceiling", {}, format="json")
    assert answer.json()["detail"] == "value is required"


def test_a_change_while_the_row_is_old_is_stamped_now(put, api, owner, agent, opened):
    before = timezone.now()
    put({"max_parallel_tasks": 7})
    agent.refresh_from_db()
    assert agent.changed_at >= before
