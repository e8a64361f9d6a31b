"""The admin: owners see and steer their own agents, superusers all of them and the fleet."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from backlog.models import Execution
from capacity.manager import CapacityManager
from fleet import keys
from fleet.models import Agent, ApiKey, AuditEntry, FleetSettings
from fleet.services import create_key

pytestmark = pytest.mark.django_db

LIST = "/admin/fleet/agent/"
KEYS = "/admin/fleet/apikey/"
FLEET = "/admin/fleet/fleetsettings/1/change/"
SignIn = Callable[[User], Client]


@pytest.fixture
def signed_in(valkey: redis.Redis) -> SignIn:
    """Makes browsers in which a user is signed in; the slot store is open."""
    CapacityManager().rebuild()

    def make(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return make


def row_edit(*rows: tuple[Agent, int, int]) -> dict[str, Any]:
    """The list's form as sent by who saw these `(agent, limit, …)` and typed the last number as the limit."""
    data: dict[str, Any] = {"form-TOTAL_FORMS": len(rows), "form-INITIAL_FORMS": len(rows), "_save": "Save"}
    for number, (agent, seen, typed) in enumerate(rows):
        data |= {
            f"form-{number}-id": agent.pk,
            f"initial-form-{number}-max_parallel_tasks": seen,
            f"form-{number}-max_parallel_tasks": typed,
            f"version-{agent.pk}": agent.settings_version,
        }
    return data


def said(answer: HttpResponse) -> list[str]:
    """The messages on the page."""
    return [
        re.sub(r"<[^>]+>", "", text).strip() for text in re.findall(r'<li class="(?:success|error)">(.*?)</li>', answer.text, re.DOTALL)
    ]


@pytest.fixture
def save(django_capture_on_commit_callbacks: Any) -> Callable[..., HttpResponse]:
    """Sends a form to the admin, and does what waits for the transaction's end."""

    def send(client: Client, path: str, data: dict[str, Any]) -> HttpResponse:
        with django_capture_on_commit_callbacks(execute=True):
            answer = client.post(path, data)
        return client.get(answer["Location"]) if answer.status_code == 302 else answer

    return send


Save = Callable[..., HttpResponse]


# -- Who may enter ---------------------------------------------------------------------------------------------------
def test_the_door_is_the_one_login_page(client: Client, agent: Agent) -> None:
    answer = client.get(LIST, follow=True)
    assert answer.redirect_chain[-1][0] == f"/login/?next={LIST}"


def test_owners_enter_and_whoever_owns_nothing_does_not(signed_in: SignIn, agent: Agent, owner: User, stranger: User) -> None:
    assert signed_in(owner).get("/admin/").status_code == 200
    assert signed_in(stranger).get("/admin/", follow=True).status_code == 403
    agent.owner = stranger
    agent.save()
    assert signed_in(owner).get("/admin/", follow=True).status_code == 403


def test_owners_see_agents_and_keys_and_superusers_the_fleet_and_users_too(
    signed_in: SignIn, agent: Agent, owner: User, superuser: User
) -> None:
    def models(user: User) -> set[str]:
        return set(re.findall(r'class="model-(\w+)', signed_in(user).get("/admin/").text))

    owners = {"agent", "apikey", "auditentry", "execution", "publiclink", "schedule", "share"}
    assert models(owner) == owners
    assert models(superuser) == owners | {"fleetsettings", "user"}
    for path in ("/admin/fleet/fleetsettings/", "/admin/fleet/fleetsettings/1/change/", "/admin/auth/user/", "/admin/auth/user/add/"):
        assert signed_in(owner).get(path).status_code == 403
        assert signed_in(superuser).get(path).status_code == 200


def test_owners_see_their_own_agents_only(
    signed_in: SignIn, agent: Agent, owner: User, superuser: User, stranger: User, make_agent: Any
) -> None:
    other = make_agent(name="other", owner=stranger)
    assert "other" not in signed_in(owner).get(LIST).text
    assert signed_in(owner).get(f"{LIST}{other.pk}/change/").status_code == 302
    assert "other" in signed_in(superuser).get(LIST).text


# -- The list --------------------------------------------------------------------------------------------------------
def test_the_list_shows_live_meters_under_a_strict_policy(signed_in: SignIn, agent: Agent, owner: User) -> None:
    answer = signed_in(owner).get(LIST)
    assert re.search(rf'<capacity-meter agent="{agent.name}" active="0" max="3"', answer.text)
    assert f'<span data-used="{agent.name}">0/3</span>' in answer.text
    assert re.search(r'<script src="/static/trinity/pages/admin\.js" type="module"></script>', answer.text)
    assert "script-src 'self'" in answer["Content-Security-Policy"]


def test_the_list_reads_all_meters_at_once(signed_in: SignIn, owner: User, make_agent: Any, django_assert_max_num_queries: Any) -> None:
    for _ in range(20):
        make_agent()
    client = signed_in(owner)
    with django_assert_max_num_queries(10):
        client.get(LIST)


def test_a_limit_changed_in_the_list_is_set_audited_and_versioned(signed_in: SignIn, save: Save, agent: Agent, owner: User) -> None:
    answer = save(signed_in(owner), LIST, row_edit((agent, 3, 5)))
    assert said(answer) == ["1 agent was changed successfully."]
    agent.refresh_from_db()
    assert (agent.max_parallel_tasks, agent.settings_version, agent.changed_by) == (5, 2, owner)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.before, entry.after, entry.actor) == ("max_parallel_tasks", 3, 5, owner)


def test_a_limit_that_somebody_else_changed_meanwhile_is_not_written_over(signed_in: SignIn, save: Save, agent: Agent, owner: User) -> None:
    Agent.objects.filter(pk=agent.pk).update(max_parallel_tasks=7, settings_version=2)
    answer = save(signed_in(owner), LIST, row_edit((agent, 3, 5)))
    assert "The settings changed since you read them" in answer.text
    agent.refresh_from_db()
    assert agent.max_parallel_tasks == 7


def test_a_row_that_was_not_touched_is_not_set_back(signed_in: SignIn, save: Save, agent: Agent, owner: User, make_agent: Any) -> None:
    other = make_agent()
    Agent.objects.filter(pk=other.pk).update(max_parallel_tasks=7, settings_version=2)
    save(signed_in(owner), LIST, row_edit((agent, 3, 5), (other, 3, 3)))
    assert [Agent.objects.get(pk=row.pk).max_parallel_tasks for row in (agent, other)] == [5, 7]


def test_a_change_that_loses_a_race_after_the_check_is_not_made(
    signed_in: SignIn, agent: Agent, owner: User, django_capture_on_commit_callbacks: Any
) -> None:
    client = signed_in(owner)
    with django_capture_on_commit_callbacks() as callbacks:
        client.post(LIST, row_edit((agent, 3, 5)))
    Agent.objects.filter(pk=agent.pk).update(max_parallel_tasks=7, settings_version=2)
    for callback in callbacks:
        callback()
    agent.refresh_from_db()
    assert agent.max_parallel_tasks == 7


def test_a_limit_typed_while_an_override_lasts_is_the_lasting_one(signed_in: SignIn, save: Save, agent: Agent, owner: User) -> None:
    Agent.objects.filter(pk=agent.pk).update(
        max_parallel_tasks=6, base_max_parallel_tasks=3, override_until=timezone.now() + timedelta(hours=1)
    )
    client = signed_in(owner)
    assert "then 3 again" in client.get(f"{LIST}{agent.pk}/change/").text
    save(client, LIST, row_edit((agent, 6, 6)))
    agent.refresh_from_db()
    assert agent.base_max_parallel_tasks == 3
    save(client, LIST, row_edit((agent, 6, 5)))
    agent.refresh_from_db()
    assert (agent.max_parallel_tasks, agent.base_max_parallel_tasks, agent.override_until) == (5, None, None)
    assert "then 3 again" not in client.get(f"{LIST}{agent.pk}/change/").text


@pytest.mark.parametrize("typed", [0, 11, "many", ""])
def test_a_limit_out_of_range_is_refused(signed_in: SignIn, save: Save, agent: Agent, owner: User, typed: Any) -> None:
    answer = save(signed_in(owner), LIST, row_edit((agent, 3, typed)))
    assert answer.status_code == 200
    assert "errorlist" in answer.text
    agent.refresh_from_db()
    assert agent.max_parallel_tasks == 3


def test_a_stored_limit_above_a_lowered_ceiling_hinders_no_other_change(
    signed_in: SignIn, save: Save, agent: Agent, owner: User, make_agent: Any
) -> None:
    high = make_agent(limit=8)
    FleetSettings.objects.update(max_parallel_tasks_ceiling=4)
    save(signed_in(owner), LIST, row_edit((agent, 3, 4), (high, 8, 8)))
    assert [Agent.objects.get(pk=row.pk).max_parallel_tasks for row in (agent, high)] == [4, 8]


# -- One agent -------------------------------------------------------------------------------------------------------
def change_form(agent: Agent, **typed: int) -> dict[str, Any]:
    """The form of an agent as sent by who saw it as it is and typed these."""
    names = ("max_parallel_tasks", "max_backlog_depth", "execution_timeout_seconds")
    seen = {f"initial-{name}": getattr(agent, name) for name in names}
    return seen | {name: getattr(agent, name) for name in names} | {"seen_version": agent.settings_version} | typed


def test_limits_are_changed_in_the_form(signed_in: SignIn, save: Save, agent: Agent, owner: User) -> None:
    answer = save(signed_in(owner), f"{LIST}{agent.pk}/change/", change_form(agent, max_parallel_tasks=4, max_backlog_depth=9))
    assert "was changed successfully" in said(answer)[0]
    agent.refresh_from_db()
    assert (agent.max_parallel_tasks, agent.max_backlog_depth, agent.settings_version) == (4, 9, 2)


def test_a_form_read_before_somebody_elses_change_is_refused(signed_in: SignIn, save: Save, agent: Agent, owner: User) -> None:
    Agent.objects.filter(pk=agent.pk).update(max_backlog_depth=1, settings_version=2)
    answer = save(signed_in(owner), f"{LIST}{agent.pk}/change/", change_form(agent, max_parallel_tasks=4))
    assert "The settings changed since you read them" in answer.text
    agent.refresh_from_db()
    assert (agent.max_parallel_tasks, agent.max_backlog_depth) == (3, 1)


def test_secrets_are_never_shown(signed_in: SignIn, owner: User, make_agent: Any) -> None:
    runtime = {"kind": "http", "url": "http://127.0.0.1:9", "headers": {"Authorization": "hush-hush"}}
    agent = make_agent(runtime=runtime)
    text = signed_in(owner).get(f"{LIST}{agent.pk}/change/").text
    assert "http://127.0.0.1:9" in text
    assert "Authorization" in text
    assert "hush-hush" not in text


def test_nobody_deletes_an_agent_here(signed_in: SignIn, agent: Agent, superuser: User) -> None:
    assert signed_in(superuser).get(f"{LIST}{agent.pk}/delete/").status_code == 403


NEW = {
    "name": "fresh",
    "description": "",
    "runtime": '{"kind": "http", "url": "http://127.0.0.1:9", "headers": {"X-Key": "secret"}}',
    "max_parallel_tasks": 2,
    "max_backlog_depth": 50,
    "execution_timeout_seconds": 900,
}


def test_an_agent_is_made_with_its_makers_ownership(signed_in: SignIn, save: Save, agent: Agent, owner: User) -> None:
    answer = save(signed_in(owner), f"{LIST}add/", NEW)
    assert "was added successfully" in said(answer)[0]
    made = Agent.objects.get(name="fresh")
    assert (made.owner, made.max_parallel_tasks, made.runtime_kind) == (owner, 2, "http")
    assert made.runtime == {"url": "http://127.0.0.1:9", "headers": {"X-Key": "secret"}}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "Not A Name"}, "name must be 1 to 63 lower-case letters"),
        ({"name": "slots"}, "name must not be"),
        ({"name": "agent-1"}, "exists already"),
        ({"runtime": "{"}, "Enter a valid JSON."),
        ({"runtime": "[1]"}, "runtime must be an object with a kind"),
        ({"runtime": '{"kind": "http"}'}, "url is required"),
        ({"runtime": '{"kind": "command", "argv": ["cat"]}'}, "Only superusers can configure command runtimes"),
        ({"max_parallel_tasks": 99}, "max_parallel_tasks must be an integer between 1 and 10"),
    ],
)
def test_what_the_api_refuses_is_refused_in_its_words(
    signed_in: SignIn, save: Save, agent: Agent, owner: User, wrong: dict[str, Any], sentence: str
) -> None:
    answer = save(signed_in(owner), f"{LIST}add/", NEW | wrong)
    assert answer.status_code == 200
    assert sentence in " ".join(re.findall(r'<ul class="errorlist[^>]*>(.*?)</ul>', answer.text, re.DOTALL))
    assert list(Agent.objects.all()) == [agent]


# -- Keys ------------------------------------------------------------------------------------------------------------
def test_a_key_is_shown_once_and_works(signed_in: SignIn, agent: Agent, owner: User, api: Any) -> None:
    client = signed_in(owner)
    answer = client.post(f"{KEYS}add/", {"name": "laptop", "scope": "user", "agent": "", "expires_at_0": "", "expires_at_1": ""})
    key = re.search(r'<code id="new-key">(trinity_[^<]+)</code>', answer.text)
    assert key is not None
    assert answer["Cache-Control"].startswith("no-store") or "no-store" in answer["Cache-Control"]
    row = ApiKey.objects.get()
    assert (row.owner, row.digest) == (owner, keys.digest_of(key[1]))
    assert api(key[1]).get("/api/agents/").status_code == 200
    text = client.get(KEYS).text
    assert row.prefix in text
    assert key[1] not in text


def test_only_keys_that_one_may_have_are_made(signed_in: SignIn, agent: Agent, owner: User, stranger: User, make_agent: Any) -> None:
    client = signed_in(owner)
    foreign = make_agent(owner=stranger)
    for wrong in ({"scope": "system"}, {"scope": "agent"}, {"scope": "agent", "agent": foreign.pk}, {"scope": "user", "agent": agent.pk}):
        answer = client.post(f"{KEYS}add/", {"name": "k", "agent": "", "expires_at_0": "", "expires_at_1": ""} | wrong)
        assert answer.status_code == 200
        assert "errorlist" in answer.text
    assert not ApiKey.objects.exists()
    client.post(f"{KEYS}add/", {"name": "k", "scope": "agent", "agent": agent.pk, "expires_at_0": "", "expires_at_1": ""})
    assert ApiKey.objects.get().agent == agent


def test_a_revoked_key_is_refused_after_a_confirmation(signed_in: SignIn, agent: Agent, owner: User, api: Any) -> None:
    client, new = signed_in(owner), create_key(owner=owner, name="old", scope="user")
    chosen = {"action": "revoke", "_selected_action": new.row.pk}
    assert "old" in client.post(KEYS, chosen).text
    assert api(new.key).get("/api/agents/").status_code == 200
    assert client.post(KEYS, chosen | {"confirmed": "yes"}).status_code == 302
    assert api(new.key).get("/api/agents/").status_code == 401


def test_one_sees_and_revokes_ones_own_keys_only(signed_in: SignIn, agent: Agent, owner: User, stranger: User, superuser: User) -> None:
    foreign = create_key(owner=stranger, name="foreign", scope="user").row
    assert "foreign" not in signed_in(owner).get(KEYS).text
    signed_in(owner).post(KEYS, {"action": "revoke", "_selected_action": foreign.pk, "confirmed": "yes"})
    foreign.refresh_from_db()
    assert foreign.revoked_at is None
    signed_in(superuser).post(KEYS, {"action": "revoke", "_selected_action": foreign.pk, "confirmed": "yes"})
    foreign.refresh_from_db()
    assert foreign.revoked_at is not None


# -- The fleet and its people ----------------------------------------------------------------------------------------
def test_the_ceiling_is_a_superusers(signed_in: SignIn, save: Save, superuser: User) -> None:
    client = signed_in(superuser)
    assert "was changed successfully" in said(save(client, FLEET, fleet_edit(max_parallel_tasks_ceiling=20)))[0]
    assert FleetSettings.objects.get().max_parallel_tasks_ceiling == 20
    assert AuditEntry.objects.get().action == "max_parallel_tasks_ceiling"
    assert "errorlist" in save(client, FLEET, fleet_edit(max_parallel_tasks_ceiling=33)).text


def test_the_cap_is_set_by_the_services_and_over_nobody_elses_change(
    signed_in: SignIn, save: Save, api: Any, superuser: User, agent: Agent
) -> None:
    client = signed_in(superuser)
    assert "was changed successfully" in said(save(client, FLEET, fleet_edit(max_concurrent_tasks=1, on_full="queue")))[0]
    for _ in range(3):
        api(superuser).post(f"/api/agents/{agent.name}/task", {"message": "m", "async_mode": True}, format="json")
    stale = fleet_edit(max_concurrent_tasks=3)
    assert "was changed successfully" in said(save(client, FLEET, fleet_edit(max_concurrent_tasks=2)))[0]
    assert Execution.objects.filter(status="running").count() == 2
    assert "The settings changed since you read them" in save(client, FLEET, stale).text
    assert "was changed successfully" in said(save(client, FLEET, fleet_edit(max_concurrent_tasks="", on_full="reject")))[0]
    row = FleetSettings.objects.get()
    assert (row.max_concurrent_tasks, row.on_full, row.cap_version, row.ceiling_version) == (None, "reject", 4, 1)
    assert Execution.objects.filter(status="running").count() == 3
    for wrong in (0, 100_001, "many"):
        assert "errorlist" in save(client, FLEET, fleet_edit(max_concurrent_tasks=wrong)).text
    assert [(entry.action, entry.before, entry.after) for entry in AuditEntry.objects.order_by("id")] == [
        ("max_concurrent_tasks", None, 1),
        ("max_concurrent_tasks", 1, 2),
        ("max_concurrent_tasks", 2, None),
        ("on_full", "queue", "reject"),
    ]


def fleet_edit(**typed: Any) -> dict[str, Any]:
    """The form of the fleet's settings as sent by who sees them as they are and types these."""
    row = FleetSettings.objects.get()
    seen = {name: getattr(row, name) for name in ("max_parallel_tasks_ceiling", "max_concurrent_tasks", "on_full")}
    data = {name: "" if value is None else value for name, value in seen.items()}
    initial = {f"initial-{name}": value for name, value in data.items()}
    return {**data, **initial, "seen_ceiling": row.ceiling_version, "seen_cap": row.cap_version, **typed}


def test_superusers_make_users(signed_in: SignIn, superuser: User) -> None:
    new = {"username": "nina", "usable_password": "true", "password1": "nina-password", "password2": "nina-password"}
    assert signed_in(superuser).post("/admin/auth/user/add/", new).status_code == 302
    assert User.objects.get(username="nina").check_password("nina-password")


@pytest.mark.parametrize("model", ["fleet/agent", "fleet/auditentry", "fleet/apikey", "fleet/share", "backlog/execution", "auth/user"])
def test_addresses_that_nobody_types_break_no_list(signed_in: SignIn, superuser: User, model: str) -> None:
    client = signed_in(superuser)
    for name in ("q", "agent", "status", "source", "scope"):
        for value in ("a\0", "9" * 20, "x" * 60_000):
            assert client.get(f"/admin/{model}/", {name: value}).status_code < 500
    picked = {"app_label": "fleet", "model_name": "share", "field_name": "user", "term": "a\0"}
    assert client.get("/admin/autocomplete/", picked).status_code < 500
