"""The dashboard as the server makes it, and what its list is searched and sorted by."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog.models import Execution, Status
from backlog.occupancy import longest_wait, slots_used
from core.ids import new_token
from fleet.models import Agent, FleetSettings, Share
from frontend.agent_search import parse

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
MakeAgent = Callable[..., Agent]


def execution(agent: Agent, **columns: object) -> Execution:
    """A row of the agent's, waiting unless told otherwise."""
    values = {"message": "Look", "timeout_seconds": 60, "status": Status.QUEUED} | columns
    return Execution.objects.create(agent=agent, agent_name=agent.name, **values)


def ran(agent: Agent, *, minutes_ago: float, minutes: float) -> Execution:
    """A run of the agent's that has ended."""
    begun = timezone.now() - timedelta(minutes=minutes_ago)
    return execution(agent, status=Status.SUCCESS, granted_at=begun, started_at=begun, completed_at=begun + timedelta(minutes=minutes))


def names(text: str) -> list[str]:
    """The agents of the list, in order."""
    return re.findall(r'<tr data-agent="([^"]+)"', text)


def figures(text: str) -> dict[str, str]:
    """The four figures as they are read."""
    found = re.findall(r'<dd class="figure__value" id="(\w+)"[^>]*>(.*?)</dd>', text)
    return {name: re.sub(r"<[^>]+>", "", value) for name, value in found}


def test_the_list_has_a_row_for_each_visible_agent_and_the_figures_count_them_all(
    signed_in: SignIn, owner: User, stranger: User, make_agent: MakeAgent
) -> None:
    busy, calm = make_agent(name="busy", limit=1), make_agent(name="calm", limit=5)
    make_agent(name="hidden", owner=stranger)
    execution(busy, queued_at=timezone.now() - timedelta(minutes=5))
    execution(busy)
    text = signed_in(owner).get("/").text
    assert names(text) == [busy.name, calm.name]
    assert figures(text) | {"oldest": ""} == {"running": "0", "free": "6", "queued": "2", "oldest": ""}
    assert 'id="oldest" data-agent="busy"' in text
    assert '<span class="health" data-health="backlogged">Backlogged</span>' in text
    assert 'aria-label="Nothing ran in the last hour"' in text


def test_only_owners_get_a_stepper_and_a_pause_and_only_superusers_pause_all(
    signed_in: SignIn, owner: User, stranger: User, superuser: User, agent: Agent
) -> None:
    Share.objects.create(agent=agent, user=stranger)
    assert [signed_in(user).get("/").text.count("data-stepper") for user in (owner, stranger, superuser)] == [1, 0, 1]
    assert [signed_in(user).get("/").text.count("data-pause") for user in (owner, stranger, superuser)] == [1, 0, 1]
    assert [signed_in(user).get("/").text.count('id="pause-all"') for user in (owner, stranger, superuser)] == [0, 0, 1]


def test_what_limits_an_agent_is_said(signed_in: SignIn, owner: User, make_agent: MakeAgent) -> None:
    make_agent(name="paused", paused=True)
    make_agent(name="wide", limit=30)
    make_agent(name="own", limit=2)
    text = signed_in(owner).get("/").text
    assert re.findall(r'data-cell="limited">([^<]+)<', text) == ["Agent limit", "Paused", "Ceiling (10)"]
    FleetSettings.objects.update(paused=True)
    assert re.findall(r'data-cell="limited">([^<]+)<', signed_in(owner).get("/").text) == ["Fleet paused"] * 3


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["alpha", "beta", "gamma"]),
        ("ALPH", ["alpha"]),
        ("status:paused", ["beta"]),
        ("health:PAUSED owner:me", ["beta"]),
        ("health:idle status:paused", ["alpha", "beta", "gamma"]),
        ("owner:sam", ["gamma"]),
        ("owner:olga tells", ["alpha"]),
        ('"tells time"', ["alpha"]),
        ("time tells", ["alpha"]),
        ("kind:http", []),
        ("status:nonsense", []),
        ("owner: status:", []),
        ("<script>%00\x00", []),
    ],
)
def test_a_search_finds_agents_by_words_and_qualifiers(
    signed_in: SignIn, owner: User, stranger: User, make_agent: MakeAgent, query: str, found: list[str]
) -> None:
    alpha = make_agent(name="alpha")
    Agent.objects.filter(pk=alpha.pk).update(description="Tells time")
    make_agent(name="beta", paused=True)
    shared = make_agent(name="gamma", owner=stranger)
    Share.objects.create(agent=shared, user=owner)
    User.objects.filter(pk=stranger.pk).update(username="sam")
    answer = signed_in(owner).get("/", {"q": query})
    assert answer.status_code == 200
    assert names(answer.text) == found
    assert "<script>%00" not in answer.text
    tiles = re.findall(r'<li class="tile" data-agent="([^"]+)"', signed_in(owner).get("/agents/", {"q": query}).text)
    assert tiles == found


def test_a_search_reads_no_more_than_its_first_characters() -> None:
    assert len(parse("x" * 10_000).words[0]) == 200


@pytest.mark.parametrize(
    ("sort", "first"), [("name", "a"), ("-name", "c"), ("waiting", "a"), ("-waiting", "c"), ("health", "b"), ("-limit", "a"), ("'", "a")]
)
def test_the_list_is_sorted_by_any_column_and_says_which(
    signed_in: SignIn, owner: User, make_agent: MakeAgent, sort: str, first: str
) -> None:
    make_agent(name="a", limit=9), make_agent(name="b", limit=2, paused=True)
    execution(make_agent(name="c", limit=3))
    text = signed_in(owner).get("/", {"sort": sort}).text
    assert names(text)[0] == first
    if sort not in {"'", "-limit"}:
        assert re.search(rf'aria-sort="{"descending" if sort.startswith("-") else "ascending"}"', text)


def test_long_lists_come_in_pages_by_a_number_of_queries_that_does_not_grow(signed_in: SignIn, owner: User, make_agent: MakeAgent) -> None:
    client = signed_in(owner)
    make_agent(name="first")
    with CaptureQueriesContext(
        connection,
    ) as few:
        client.get("/")
    for number in range(60):
        ran(make_agent(name=f"agent-{number:02}"), minutes_ago=9, minutes=2)
    with CaptureQueriesContext(connection) as many:
        text = client.get("/", {"q": "agent", "sort": "-name"}).text
    assert len(many) == len(few) <= 12
    assert len(names(text)) == 50
    assert 'href="?q=agent&amp;sort=-name&amp;page=2"' in text
    assert len(names(client.get("/", {"page": 2}).text)) == 11
    assert client.get("/", {"page": "'"}).status_code == client.get("/", {"page": 999}).status_code == 200


def test_without_agents_or_without_any_found_the_page_says_so(signed_in: SignIn, owner: User, make_agent: MakeAgent) -> None:
    assert "No agents yet" in signed_in(owner).get("/").text
    make_agent()
    assert "No agent is like that" in signed_in(owner).get("/?q=nowhere").text


def test_while_the_slot_store_is_away_figures_are_unknown_and_lines_still_counted(
    signed_in: SignIn, owner: User, agent: Agent, valkey: redis.Redis
) -> None:
    client = signed_in(owner)
    execution(agent)
    valkey.flushdb()  # an emptied store answers nothing until it is rebuilt
    text = client.get("/").text
    assert figures(text) | {"oldest": ""} == {"running": "unknown", "free": "unknown", "queued": "1", "oldest": ""}
    assert 'data-health="unknown"' in text


def test_free_slots_are_no_more_than_the_fleets_cap_leaves(signed_in: SignIn, owner: User, make_agent: MakeAgent) -> None:
    make_agent(limit=5), make_agent(limit=5, paused=True)
    assert figures(signed_in(owner).get("/").text)["free"] == "5"
    FleetSettings.objects.update(max_concurrent_tasks=2)
    assert figures(signed_in(owner).get("/").text)["free"] == "2"


def test_the_timeline_is_the_other_view_of_the_same_page(signed_in: SignIn, owner: User, agent: Agent) -> None:
    text = signed_in(owner).get("/?view=timeline").text
    assert 'id="timeline"' in text
    assert names(text) == []
    assert figures(text)["free"] == "3"


def test_the_oldest_wait_can_be_asked_for_alone(signed_in: SignIn, owner: User, agent: Agent) -> None:
    client = signed_in(owner)
    assert figures(client.get("/dashboard/oldest-wait/").text) == {"oldest": "none"}
    execution(agent)
    assert f'id="oldest" data-agent="{agent.name}"' in client.get("/dashboard/oldest-wait/").text


def test_the_slots_used_are_the_means_of_each_minute_however_runs_lie_in_them(make_agent: MakeAgent) -> None:
    agent, other = make_agent(), make_agent()
    now = timezone.now()
    for begun, ended in ((10.0, 9.5), (10.0, 8.5), (61.0, 59.0), (90.0, 70.0)):
        span = {"granted_at": now - timedelta(minutes=begun), "completed_at": now - timedelta(minutes=ended)}
        execution(agent, status=Status.SUCCESS, started_at=now, queued_at=span["granted_at"], **span)
    held = {"status": Status.RUNNING, "slot_token": new_token(), "slot_number": 1}
    execution(agent, queued_at=now - timedelta(minutes=3), granted_at=now - timedelta(minutes=2), **held)
    execution(agent, status=Status.CANCELLED, completed_at=now - timedelta(minutes=5), queued_at=now - timedelta(minutes=6))
    used = slots_used([agent.pk, other.pk], end=now, minutes=60)
    assert list(used) == [agent.pk]
    expected = {0: 1.0, 50: 1.5, 51: 0.5, 58: 1.0, 59: 1.0}
    assert used[agent.pk] == pytest.approx([expected.get(minute, 0.0) for minute in range(60)], abs=0.001)


def test_the_longest_wait_is_that_of_the_line_asked_for(make_agent: MakeAgent) -> None:
    agent, other = make_agent(), make_agent()
    early = execution(other, queued_at=timezone.now() - timedelta(hours=1))
    late = execution(agent)
    late.refresh_from_db()
    assert longest_wait([agent.pk, other.pk]) == (other.name, early.queued_at)
    assert longest_wait([agent.pk]) == (agent.name, late.queued_at)
    assert longest_wait([]) is None


def test_the_admin_is_found_without_its_last_slash(client: Client) -> None:
    assert client.get("/admin?next=x")["Location"] == "/admin/?next=x"
