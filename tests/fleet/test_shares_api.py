"""Sharing an agent, and taking that back."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from capacity.manager import CapacityManager
from fleet.models import Agent, AuditEntry, Share

NO_USER = "username must be the user name of an active user"


@pytest.fixture
def shares(api: Any, agent: Agent, owner: User) -> Callable[..., Any]:
    """`shares("post", {…}, by=…, to=…)`: a request to the agent's shares, the owner's unless told otherwise."""

    def send(method: str, body: Any = None, *, by: Any = owner, of: str = agent.name, to: str = "") -> Any:
        return getattr(api(by), method)(f"/api/agents/{of}/shares/{to}", body, format="json")

    return send


def told(answer: Any) -> tuple[int, str, str]:
    assert answer["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


def names(answer: Any) -> list[str]:
    """Of the agents in a list."""
    return [row["name"] for row in answer.json()["results"]]


def test_a_shared_agent_is_seen_and_used_at_once_and_no_more_once_it_is_withdrawn(shares, api, agent, stranger):
    CapacityManager().refill()
    guest, path, task = api(stranger), f"/api/agents/{agent.name}", {"message": "hello", "async_mode": True}
    made = shares("post", {"username": "sten"})
    assert (made.status_code, made["Location"]) == (201, f"{path}/shares/sten/")
    assert set(made.json()) == {"username", "created_at"}
    assert shares("get").json() == {"results": [made.json()], "next": None, "previous": None}
    assert names(guest.get("/api/agents/")) == [agent.name] == list(guest.get("/api/agents/slots").json()["agents"])
    sent = guest.post(f"{path}/task", task, format="json")
    assert sent.status_code == 202
    assert guest.get(f"{path}/shares/").json()["code"] == "owner_required"

    assert shares("delete", to="sten/").status_code == 204
    assert shares("get").json()["results"] == names(guest.get("/api/agents/")) == []
    assert guest.get("/api/agents/slots").json()["agents"] == {}
    assert guest.get("/api/executions/").json()["results"] == []
    for answer in (guest.get(f"{path}/"), guest.post(f"{path}/task", task, format="json"), guest.get(sent["Location"])):
        assert told(answer) == (403, "access_denied", "Access denied")


def test_sharing_twice_is_sharing_once(shares, agent, stranger):
    first, second = shares("post", {"username": "sten"}), shares("post", {"username": "sten"})
    assert (second.status_code, second.json(), second["Location"]) == (200, first.json(), first["Location"])
    assert [entry.after for entry in AuditEntry.objects.filter(action="shared")] == ["sten"]


def test_withdrawing_twice_finds_nothing_to_withdraw(shares, friend, agent):
    assert shares("delete", to="frida").status_code == 204
    assert told(shares("delete", to="frida")) == (404, "share_not_found", "Share not found")
    (entry,) = AuditEntry.objects.filter(action="unshared")
    assert (entry.actor_name, entry.agent, entry.before, entry.after) == ("olga", agent, "frida", None)


@pytest.mark.parametrize("name", ["nobody", "olga", "%00", "%ED%A0%80", "x" * 300, "FRIDA", "1%20OR%201=1"])
def test_nothing_is_withdrawn_from_who_has_no_share(name, shares, friend):
    assert told(shares("delete", to=f"{name}/"))[0] == 404
    assert Share.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"username": "nobody"}, NO_USER),
        ({"username": "FRIDA"}, NO_USER),
        ({"username": "closed"}, NO_USER),
        ({"username": "olga"}, "username must not be the owner's"),
        ({"username": ""}, "username must be text of 1 to 150 characters"),
        ({"username": "x" * 151}, "username must be text of 1 to 150 characters"),
        ({"username": 5}, "username must be text of 1 to 150 characters"),
        ({"username": "a\0"}, "Text must not contain NUL characters"),
        ({"username": None}, "username is required"),
        ({}, "username is required"),
        ({"username": "frida", "role": "admin"}, "Unknown field 'role'; the valid fields are username"),
        ([], "The request body must be a JSON object"),
    ],
)
def test_it_is_shared_with_active_users_other_than_the_owner(body, sentence, shares, stranger):
    User.objects.create_user("closed", is_active=False)
    User.objects.create_user("frida")
    assert told(shares("post", body))[::2] == (400, sentence)
    assert not Share.objects.exists()


def test_a_superuser_shares_everybodys_agents_but_not_with_their_owner(shares, superuser, stranger):
    assert shares("post", {"username": "sten"}, by=superuser).status_code == 201
    assert told(shares("post", {"username": "olga"}, by=superuser))[2] == "username must not be the owner's"


def test_shares_of_a_deleted_agent_are_gone_with_it(shares, api, owner, agent, friend):
    assert api(owner).delete(f"/api/agents/{agent.name}/").status_code == 204
    assert told(shares("get"))[1] == "agent_not_found"
    assert names(api(friend).get("/api/agents/")) == []


def test_shares_are_paged_newest_first(shares, agent):
    for number in range(3):
        Share.objects.create(agent=agent, user=User.objects.create_user(f"guest-{number}"))
    first = shares("get", to="?limit=2")
    assert [row["username"] for row in first.json()["results"]] == ["guest-2", "guest-1"]
    assert told(shares("get", to="?user=5"))[1] == "unknown_parameter"


def test_who_gets_the_agent_needs_no_share_of_it_and_the_other_guests_stay(shares, api, agent, owner, friend, stranger):
    shares("post", {"username": "sten"})
    assert api(owner).patch(f"/api/agents/{agent.name}/", {"owner": "sten"}, format="json").status_code == 200
    assert [share.user for share in Share.objects.all()] == [friend]
    assert told(shares("get"))[1] == "access_denied"
    assert [row["username"] for row in shares("get", by=stranger).json()["results"]] == ["frida"]
