"""Badges: an agent's load as a picture that needs no login."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from backlog.models import Execution, Status
from capacity.manager import CapacityManager
from capacity.selectors import Meter
from fleet.models import Agent, AuditEntry
from frontend.badge import COLOURS, picture, words

Api = Callable[[User | None], APIClient]
SVG = "{http://www.w3.org/2000/svg}"
STYLE = Path(__file__).resolve().parents[2] / "frontend/static/trinity/elements/meter-style.js"


@pytest.fixture
def badge(api: Api, owner: User, agent: Agent) -> str:
    """The path of the agent's badge; the slot store is open."""
    CapacityManager().rebuild()
    made = api(owner).post(f"/api/agents/{agent.name}/badge/", {}, format="json")
    assert made.status_code == 201
    assert made.data["markdown"] == f"![{agent.name}]({made.data['url']})"
    return str(made.data["url"]).removeprefix("http://testserver")


def said(answer: Any) -> list[str]:
    """The texts of the picture."""
    return [text.text or "" for text in ElementTree.fromstring(answer.content).iter(f"{SVG}text")]


def meter(active: int | None, limit: int = 5, queued: int = 0, paused: bool = False) -> Meter:
    """A load."""
    return Meter(max=limit, active=active, queued=queued, paused=paused, version=1)


def test_it_shows_the_load_to_anybody_by_few_queries(
    client: Client, badge: str, agent: Agent, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    for _ in range(2):
        Execution.objects.create(agent=agent, agent_name=agent.name, message="x", timeout_seconds=60, status=Status.QUEUED)
    with django_assert_max_num_queries(3):
        answer = client.get(badge)
    assert (answer.status_code, answer["Content-Type"], answer["Cache-Control"]) == (
        200,
        "image/svg+xml; charset=utf-8",
        "public, max-age=30",
    )
    assert said(answer) == [agent.name, "0/3 · 2 waiting"]
    root = ElementTree.fromstring(answer.content)
    assert root.get("role") == "img"
    assert [title.text for title in root.iter(f"{SVG}title")] == [f"{agent.name}: 0/3 · 2 waiting"]
    assert "Set-Cookie" not in answer
    assert client.get(badge, headers={"If-None-Match": answer["ETag"]}).status_code == 304
    Agent.objects.filter(pk=agent.pk).update(max_parallel_tasks=4)
    assert client.get(badge, headers={"If-None-Match": answer["ETag"]}).status_code == 200


def test_a_slot_store_that_is_down_is_unknown_and_not_idle(client: Client, badge: str, agent: Agent, store_out_of_reach: Any) -> None:
    store_out_of_reach(True)
    assert said(client.get(badge)) == [agent.name, "unknown"]


def test_a_new_address_ends_the_former_and_taking_it_back_ends_both(
    client: Client, badge: str, api: Api, owner: User, agent: Agent
) -> None:
    place = f"/api/agents/{agent.name}/badge/"
    assert api(owner).get(place).data["url"].endswith(badge)
    renewed = api(owner).post(place, {}, format="json").data["url"]
    assert client.get(badge).status_code == 404
    assert client.get(renewed).status_code == 200
    for _ in range(2):
        assert api(owner).delete(place).status_code == 204
    assert client.get(renewed).status_code == 404
    assert api(owner).get(place).data == {"url": None, "markdown": None, "made_at": None}
    assert list(AuditEntry.objects.filter(agent=agent).order_by("id").values_list("action", flat=True)) == [
        "badge_made", "badge_made", "badge_revoked",
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["x", "A" * 24, "A" * 5000, "%00" * 24, "é" * 24, "' OR 1=1 --aaaaaaaaaaaaa", "..%2f..%2fetc"])
def test_a_key_that_leads_nowhere_is_a_404(client: Client, db: None, key: str) -> None:
    assert client.get(f"/badge/{key}.svg").status_code == 404


def test_a_deleted_agents_badge_is_gone(client: Client, badge: str, api: Api, owner: User, agent: Agent) -> None:
    assert api(owner).delete(f"/api/agents/{agent.name}/").status_code == 204
    assert client.get(badge).status_code == 404


def test_it_is_read_and_nothing_else(client: Client, badge: str) -> None:
    assert client.head(badge).status_code == 200
    assert client.post(badge).status_code == 405


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (meter(3, queued=2), "3/5 · 2 waiting"),
        (meter(0), "0/5"),
        (meter(6), "6/5 · over limit"),
        (meter(2, paused=True, queued=1), "2/5 · 1 waiting · paused"),
        (meter(None, queued=4), "unknown · 4 waiting"),
    ],
)
def test_it_says_the_load_in_words(load: Meter, text: str) -> None:
    assert words(load) == text


@pytest.mark.parametrize(
    ("active", "level"), [(0, "idle"), (2, "low"), (3, "medium"), (4, "high"), (5, "full"), (6, "full"), (None, "unknown")]
)
def test_it_has_the_colour_of_the_meter(active: int | None, level: str) -> None:
    assert f'fill="{COLOURS[level]}"' in picture("a", meter(active))


def test_its_colours_are_the_elements_own() -> None:
    style = STYLE.read_text()
    for level in ("low", "medium", "high", "full"):
        assert f"--capacity-meter-{level}, {COLOURS[level]}" in style


def test_names_are_escaped_and_a_long_one_is_whole() -> None:
    root = ElementTree.fromstring(picture("<script>alert(1)</script>&\"'", meter(1)))
    assert [element.tag for element in root.iter() if "script" in element.tag] == []
    long = ElementTree.fromstring(picture("w" * 63, meter(1)))
    texts = list(long.iter(f"{SVG}text"))
    assert texts[0].text == "w" * 63
    assert float(long.get("width", 0)) > sum(float(text.get("textLength", 0)) for text in texts)


def test_a_badge_is_the_owners_to_make(api: Api, stranger: User, agent: Agent, valkey: redis.Redis) -> None:
    refused = api(stranger).post(f"/api/agents/{agent.name}/badge/", {}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "access_denied")
    unwanted = api(agent.owner).post(f"/api/agents/{agent.name}/badge/", {"key": "mine"}, format="json")
    assert unwanted.status_code == 400
    assert api(agent.owner).get(f"/api/agents/{agent.name}/badge/?x=1").status_code == 400
    assert api(agent.owner).get("/api/agents/nobody/badge/").status_code == 404
