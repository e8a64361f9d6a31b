"""Keys over REST: made and shown once, listed without their secret, revoked."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from fleet.models import Agent, ApiKey

PERSON = (403, "person_required", "Only a person can do this; sign in or use your own user key")
NOT_FOUND = (404, "key_not_found", "Key not found")
INVALID = (401, "invalid_token", "Invalid token.")
SHOWN = {"id", "name", "prefix", "scope", "agent", "owner", "created_at", "expires_at", "last_used_at", "revoked_at"}


@pytest.fixture
def agent_keys(api: Any, agent: Agent, owner: Any) -> Callable[..., Any]:
    """`agent_keys("post", {…}, by=…, to=…)`: a request to the agent's keys, the owner's unless told otherwise."""

    def send(method: str, body: Any = None, *, by: Any = owner, to: Any = "") -> Any:
        return getattr(api(by), method)(f"/api/agents/{agent.name}/keys/{to}", body, format="json")

    return send


@pytest.fixture
def own_keys(api: Any, owner: Any) -> Callable[..., Any]:
    """The same for `/api/keys/`."""

    def send(method: str, body: Any = None, *, by: Any = owner, to: Any = "") -> Any:
        return getattr(api(by), method)(f"/api/keys/{to}", body, format="json")

    return send


def told(answer: Any) -> tuple[int, str, str]:
    assert answer["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


def listed(answer: Any) -> list[str]:
    """The names in a list of keys."""
    return [key["name"] for key in answer.json()["results"]]


def test_an_agents_key_is_shown_once_works_and_is_dead_once_revoked(agent_keys, api, agent):
    made = agent_keys("post", {"name": "for the crawler"})
    body = made.json()
    assert (made.status_code, made["Cache-Control"]) == (201, "no-store")
    assert made["Location"] == f"/api/agents/{agent.name}/keys/{body['id']}/"
    key = body.pop("key")
    assert set(body) == SHOWN
    assert (body["scope"], body["agent"], body["owner"], key[:16]) == ("agent", agent.name, "olga", body["prefix"])
    assert api(key).get(f"/api/agents/{agent.name}/").status_code == 200

    again = agent_keys("get")
    assert key not in again.text
    assert again.json()["results"][0] | {"last_used_at": None} == body
    assert again.json()["results"][0]["last_used_at"] is not None

    assert [agent_keys("delete", to=f"{body['id']}/").status_code for _ in range(2)] == [204, 204]
    assert told(api(key).get(f"/api/agents/{agent.name}/")) == INVALID
    (row,) = agent_keys("get").json()["results"]
    assert row["revoked_at"] is not None


def test_ones_own_key_is_its_owner_and_makes_and_revokes_further_ones(own_keys, api, owner):
    first = own_keys("post", {"name": "first"}).json()
    assert (first["scope"], first["agent"], first["owner"]) == ("user", None, "olga")
    second = own_keys("post", {"name": "second"}, by=first["key"]).json()
    assert listed(own_keys("get", by=second["key"])) == ["second", "first"]
    assert own_keys("delete", to=f"{second['id']}/", by=second["key"]).status_code == 204
    assert told(own_keys("get", by=second["key"])) == INVALID
    assert api(first["key"]).get("/api/agents/").status_code == 200


def test_keys_of_agents_and_the_system_make_see_and_revoke_none(own_keys, agent_keys, make_key, owner, superuser, agent):
    theirs = make_key(owner, "user").row
    for made in (make_key(owner, "agent", agent=agent), make_key(superuser, "system")):
        for send, key in ((own_keys, theirs), (agent_keys, made.row)):
            assert told(send("get", by=made.key)) == PERSON
            assert told(send("post", {"name": "x"}, by=made.key)) == PERSON
            assert told(send("delete", to=f"{key.pk}/", by=made.key)) == PERSON


def test_system_keys_are_made_seen_and_revoked_by_superusers(own_keys, api, superuser, owner, make_key):
    made = own_keys("post", {"name": "metrics", "scope": "system"}, by=superuser)
    assert (made.status_code, made.json()["scope"]) == (201, "system")
    assert api(made.json()["key"]).get("/api/agents/").status_code == 200
    refused = (403, "access_denied", "Only superusers can make system keys")
    assert told(own_keys("post", {"name": "metrics", "scope": "system"})) == refused
    make_key(owner, "user")
    assert listed(own_keys("get", by=superuser)) == ["metrics"]
    assert listed(own_keys("get")) == ["user key"]
    path = f"{made.json()['id']}/"
    assert told(own_keys("delete", to=path)) == NOT_FOUND
    assert own_keys("delete", to=path, by=superuser).status_code == 204
    assert told(api(made.json()["key"]).get("/api/agents/")) == INVALID


def test_who_is_no_superuser_any_more_manages_no_system_key(own_keys, superuser, make_key):
    key = make_key(superuser, "system").row
    superuser.is_superuser = False
    superuser.save()
    assert listed(own_keys("get", by=superuser)) == []
    assert told(own_keys("delete", to=f"{key.pk}/", by=superuser)) == NOT_FOUND


@pytest.mark.parametrize("number", ["0", "99999", "9" * 40])
def test_a_key_that_is_not_there_or_somebody_elses_is_not_found(number, own_keys, agent_keys, stranger, superuser, make_key, agent):
    theirs, agents = make_key(stranger, "user").row, make_key(agent.owner, "agent", agent=agent).row
    for send, path in ((own_keys, number), (agent_keys, number), (own_keys, theirs.pk), (agent_keys, theirs.pk), (own_keys, agents.pk)):
        assert told(send("delete", to=f"{path}/")) == NOT_FOUND
    assert told(own_keys("delete", to=f"{theirs.pk}/", by=superuser)) == NOT_FOUND
    assert not ApiKey.objects.exclude(revoked_at=None).exists()


def test_the_agents_owner_revokes_keys_that_somebody_else_made_for_it(agent_keys, api, superuser):
    made = agent_keys("post", {"name": "by root"}, by=superuser).json()
    assert made["owner"] == "root"
    assert listed(agent_keys("get")) == ["by root"]
    assert agent_keys("delete", to=made["id"]).status_code == 204
    assert told(api(made["key"]).get("/api/agents/")) == INVALID


def test_a_former_owners_keys_for_the_agent_die_with_the_handing_on(agent_keys, api, owner, stranger, agent):
    made = agent_keys("post", {"name": "olga's"}).json()
    assert api(owner).patch(f"/api/agents/{agent.name}/", {"owner": "sten"}, format="json").status_code == 200
    assert told(api(made["key"]).get("/api/agents/")) == INVALID
    assert told(agent_keys("get"))[1] == "access_denied"
    assert listed(agent_keys("get", by=stranger)) == ["olga's"]


def test_a_key_expires_when_it_was_said_to(own_keys, api):
    soon = (timezone.now() + timedelta(minutes=5)).isoformat()
    made = own_keys("post", {"name": "x", "expires_at": soon}).json()
    assert made["expires_at"].endswith("Z")
    assert api(made["key"]).get("/api/agents/").status_code == 200
    ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=5))
    assert told(api(made["key"]).get("/api/agents/")) == INVALID
    assert own_keys("post", {"name": "x", "expires_at": None}).json()["expires_at"] is None


@pytest.mark.parametrize("send", ["own_keys", "agent_keys"])
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "name is required"),
        ({"name": None}, "name is required"),
        ({"name": " "}, "name must not be blank"),
        ({"name": "x" * 101}, "name must be text of 1 to 100 characters"),
        ({"name": ["x"]}, "name must be text of 1 to 100 characters"),
        ({"name": "a\0"}, "Text must not contain NUL characters"),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at must be in the future"),
        ({"name": "x", "expires_at": "0001-01-01T00:00:00+14:00"}, "expires_at must be a time such as 2030-01-31T12:00:00Z"),
        ({"name": "x", "expires_at": "9999-12-31T23:59:59-14:00"}, "expires_at must be a time such as 2030-01-31T12:00:00Z"),
        ({"name": "x", "expires_at": "tomorrow"}, "expires_at must be a time such as 2030-01-31T12:00:00Z"),
        ({"name": "x", "expires_at": 5}, "expires_at must be a time such as 2030-01-31T12:00:00Z"),
        ({"name": "x", "owner": "sten"}, "Unknown field 'owner'; the valid fields are "),
        ("x", "The request body must be a JSON object"),
    ],
)
def test_another_body_is_refused(body, sentence, send, request):
    status, _, detail = told(request.getfixturevalue(send)("post", body))
    assert (status, detail[: len(sentence)]) == (400, sentence)
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("scope", ["agent", "root", "", 5, None])
def test_scopes_are_user_and_system(scope, own_keys):
    assert told(own_keys("post", {"name": "x", "scope": scope})) == (400, "invalid", "scope must be one of user, system")


def test_lists_are_paged_and_take_no_other_parameter(own_keys, agent_keys, make_key, owner, agent, django_assert_num_queries):
    for _ in range(3):
        make_key(owner, "user")
        make_key(owner, "agent", agent=agent)
    for send in (own_keys, agent_keys):
        with django_assert_num_queries(3 if send is agent_keys else 2):
            page = send("get", to="?limit=2").json()
        assert len(page["results"]) == 2
        assert page["next"]
        assert told(send("get", to="?scope=user"))[1] == "unknown_parameter"
