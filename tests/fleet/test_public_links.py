"""Public links over REST: made, shown once, listed and revoked by the agent's owner."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from fleet import keys, public_links
from fleet.models import Agent, AuditEntry, PublicLink, Share
from fleet.principals import Principal


@pytest.fixture
def links(agent: Agent) -> str:
    """Where the agent's links are."""
    return f"/api/agents/{agent.name}/public-links/"


def make(api: Any, owner: User, links: str, name: str = "website") -> Any:
    """A new link's answer."""
    return api(owner).post(links, {"name": name}, format="json")


def test_the_token_is_shown_once_and_kept_as_its_digest(api: Any, owner: User, agent: Agent, links: str) -> None:
    answer = make(api, owner, links)
    row, body = PublicLink.objects.get(), answer.json()
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    assert body["url"] == f"/api/public/chat/{body['token']}"
    assert answer["Location"] == f"{links}{row.pk}/"
    assert {name: body[name] for name in ("id", "name", "prefix", "created_by", "last_used_at")} == {
        "id": row.pk, "name": "website", "prefix": body["token"][:16], "created_by": "olga", "last_used_at": None,
    }  # fmt: skip
    assert (row.agent_id, row.created_by_id, row.digest) == (agent.pk, owner.pk, keys.digest_of(body["token"]))
    listed = api(owner).get(links)
    assert (listed.status_code, listed.json()["results"]) == (
        200,
        [{name: body[name] for name in body if name not in {"token", "url"}}],
    )
    assert body["token"] not in str(list(PublicLink.objects.values()))
    assert body["token"] not in listed.content.decode()


def test_the_list_is_newest_first_in_pages(api: Any, owner: User, links: str) -> None:
    made = [make(api, owner, links, name=f"link {number}").json()["id"] for number in range(3)]
    page = api(owner).get(f"{links}?limit=2").json()
    assert [link["id"] for link in page["results"]] == [made[2], made[1]]
    assert [link["id"] for link in api(owner).get(page["next"]).json()["results"]] == [made[0]]


def test_a_revoked_link_leads_nowhere_and_is_in_no_list(api: Any, owner: User, agent: Agent, links: str) -> None:
    kept, gone = (make(api, owner, links, name=name).json() for name in ("kept", "gone"))
    answer = api(owner).delete(f"{links}{gone['id']}/")
    assert (answer.status_code, answer.content) == (204, b"")
    assert [link["id"] for link in api(owner).get(links).json()["results"]] == [kept["id"]]
    assert public_links.usable_link(gone["token"]) is None
    assert public_links.usable_link(kept["token"]) is not None
    answer = api(owner).delete(f"{links}{gone['id']}/")
    assert (answer.status_code, answer.json()["code"]) == (404, "public_link_not_found")
    actions = list(AuditEntry.objects.filter(agent=agent).order_by("id").values_list("action", "before", "after"))
    assert actions == [
        ("public_link_made", None, {"id": kept["id"], "name": "kept"}),
        ("public_link_made", None, {"id": gone["id"], "name": "gone"}),
        ("public_link_revoked", {"id": gone["id"], "name": "gone"}, None),
    ]


def test_a_link_is_the_agents_own(api: Any, owner: User, make_agent: Any, links: str) -> None:
    other = make_agent()
    link_id = make(api, owner, links).json()["id"]
    for path in (f"/api/agents/{other.name}/public-links/{link_id}/", f"{links}{link_id + 1}/", f"{links}{10**30}/"):
        answer = api(owner).delete(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "public_link_not_found")
    assert api(owner).delete(f"{links}-1/").status_code == 404
    assert api(owner).get(f"/api/agents/{other.name}/public-links/").json()["results"] == []


def test_only_people_who_own_the_agent_have_its_links(
    api: Any, agent: Agent, owner: User, stranger: User, superuser: User, links: str
) -> None:
    link_id = make(api, owner, links).json()["id"]

    def told(who: User | None) -> list[tuple[int, str]]:
        client = api(who)
        answers = [client.get(links), client.post(links, {"name": "n"}, format="json"), client.delete(f"{links}{link_id}/")]
        return [(answer.status_code, answer.json()["code"]) for answer in answers]

    assert told(None) == [(401, "not_authenticated")] * 3
    assert told(stranger) == [(403, "access_denied")] * 3
    Share.objects.create(agent=agent, user=stranger)
    assert told(stranger) == [(403, "owner_required")] * 3
    assert make(api, superuser, links).status_code == 201
    assert PublicLink.objects.filter(revoked_at=None).count() == 2


def test_a_deleted_agents_links_lead_nowhere(owner: User, agent: Agent) -> None:
    made = public_links.create_link(principal=Principal.of_user(owner), agent=agent, name="n")
    Agent.objects.filter(pk=agent.pk).update(deleted_at=timezone.now())
    assert public_links.usable_link(made.token) is None


def test_a_use_is_noted_once_a_minute(owner: User, agent: Agent) -> None:
    made = public_links.create_link(principal=Principal.of_user(owner), agent=agent, name="n")
    public_links.usable_link(made.token)
    first = PublicLink.objects.get().last_used_at
    public_links.usable_link(made.token)
    assert first is not None
    assert PublicLink.objects.get().last_used_at == first


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "name is required"),
        ({"name": " "}, "name must not be blank"),
        ({"name": "x" * 101}, "name must be text of 1 to 100 characters"),
        ({"name": 7}, "name must be text of 1 to 100 characters"),
        ({"name": "a\x00b"}, "name must not contain"),
        ({"name": "n", "agent": "other"}, "Unknown field 'agent'; the valid fields are name"),
    ],
)
def test_a_wrong_body_makes_no_link(api: Any, owner: User, links: str, body: dict[str, Any], detail: str) -> None:
    answer = api(owner).post(links, body, format="json")
    assert answer.status_code == 400
    assert not PublicLink.objects.exists()
    if "\x00" not in str(body.get("name")):
        assert answer.json()["detail"].startswith(detail)
