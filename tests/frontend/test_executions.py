"""The page of executions, and that of one, as the server makes them."""

import html
import json
import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from backlog.models import Execution, Status
from core.ids import new_id, new_token
from fleet.models import Agent, FleetSettings, Share

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
NASTY = "<img src=x onerror=alert(1)> مرحبا 🎉 \"' & </pre><script>"


def submitted(agent: Agent, status: str = Status.QUEUED, *, ago: float = 0, **columns: Any) -> Execution:
    """A row of the agent's as it stands with this status, made so many seconds ago."""
    at = timezone.now() - timedelta(seconds=ago)
    values: dict[str, Any] = {"message": "Look at the weather", "timeout_seconds": 60, "created_at": at, "queued_at": at}
    if status != Status.QUEUED:
        values |= {"granted_at": at, "started_at": at, "dispatches": 1}
    if status == Status.RUNNING:
        values |= {"slot_token": new_token(), "slot_number": 1}
    elif status != Status.QUEUED:
        values |= {"completed_at": at + timedelta(seconds=2)}
    return Execution.objects.create(agent=agent, agent_name=agent.name, status=status, **(values | columns))


def shown(text: str) -> list[uuid.UUID]:
    """The executions that a list has, in its order."""
    return [uuid.UUID(found) for found in re.findall(r'id="row-([0-9a-f-]{36})"', text)]


# -- The list --------------------------------------------------------------------------------------------------------
def test_strangers_are_sent_to_sign_in_from_every_page(client: Client) -> None:
    for path in ("/executions/", "/executions/rows/", f"/executions/{new_id()}/", f"/executions/{new_id()}/parts/"):
        assert client.get(path)["Location"].startswith("/login/?next=/executions/")


def test_the_list_has_what_the_reader_may_see_newest_first(
    signed_in: SignIn, owner: User, stranger: User, make_agent: Callable[..., Agent]
) -> None:
    mine, shared, foreign = make_agent(), make_agent(owner=stranger), make_agent(owner=stranger)
    Share.objects.create(agent=shared, user=owner)
    rows = [submitted(mine, ago=30), submitted(shared, Status.SUCCESS, ago=20, cost_usd=Decimal("0.0123")), submitted(mine, ago=10)]
    submitted(foreign)
    text = signed_in(owner).get("/executions/").text
    assert shown(text) == [row.pk for row in reversed(rows)]
    assert "$0.0123" in text
    # In line on an agent of one's own: to cancel. Ended: to retry. The stranger's is to be left alone.
    assert text.count("data-cancel=") == 2
    assert re.findall(r'data-retry="([^"]+)"', text) == [str(rows[1].pk)]


def test_filters_in_the_url_narrow_the_list_and_are_what_many_are_done_by(
    signed_in: SignIn, owner: User, stranger: User, make_agent: Callable[..., Agent]
) -> None:
    one, two = make_agent(name="one"), make_agent(name="two")
    wanted = submitted(
        one, Status.FAILED, ago=60, error_code="timeout", error="Too long", message="Sort the Mail", submitted_by=owner, triggered_by="chat"
    )
    submitted(one, Status.FAILED, ago=60, error_code="agent_error", message="Sort the mail", submitted_by=stranger)
    submitted(two, ago=60)
    submitted(one, Status.SUCCESS, ago=7200)
    client = signed_in(owner)
    for query in ("error_code=timeout", "text=sort+the+mail&mine=true", "triggered_by=chat", "status=failed&mine=true&within=1h&agent=one"):
        assert shown(client.get(f"/executions/?{query}").text) == [wanted.pk], query
    assert len(shown(client.get("/executions/?status=failed&status=queued").text)) == 3
    assert len(shown(client.get("/executions/?agent=two").text)) == 1
    text = client.get("/executions/?status=failed&mine=true&within=1h&agent=one").text
    body = json.loads(html.unescape(re.search(r'data-filters="([^"]*)"', text)[1]))  # type: ignore[index]
    assert body.pop("since") < timezone.now().isoformat()
    assert body == {"status": ["failed"], "mine": True, "agent": "one"}


@pytest.mark.parametrize(
    "query", ["status=odd", "since=yesterday", "session_id=x", "text=%00", "agent=%00", "within=9y", "mine=maybe", "error_code=" + "x" * 99]
)
def test_a_filter_that_means_nothing_is_passed_over(signed_in: SignIn, owner: User, agent: Agent, query: str) -> None:
    row = submitted(agent)
    assert shown(signed_in(owner).get(f"/executions/?{query}").text) == [row.pk]


def test_a_long_list_comes_in_pages_that_lead_to_each_other(signed_in: SignIn, owner: User, agent: Agent) -> None:
    rows = [submitted(agent, ago=1000 - number).pk for number in range(53)]
    client = signed_in(owner)
    first = client.get("/executions/?status=queued").text
    assert shown(first) == rows[:2:-1]
    older = html.unescape(re.search(r'href="([^"]+)" rel="next"', first)[1])  # type: ignore[index]
    second = client.get(older).text
    assert shown(second) == rows[2::-1]
    newer = html.unescape(re.search(r'href="([^"]+)" rel="prev"', second)[1])  # type: ignore[index]
    assert shown(client.get(newer).text) == rows[:2:-1]
    assert client.get("/executions/?status=queued&cursor=spoilt")["Location"] == "/executions/?status=queued"


def test_a_list_costs_as_many_queries_with_fifty_rows_as_with_one(
    signed_in: SignIn, owner: User, make_agent: Callable[..., Agent], django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    client = signed_in(owner)
    for number in range(50):
        submitted(make_agent(), (Status.QUEUED, Status.SUCCESS, Status.RUNNING)[number % 3])
    with django_assert_max_num_queries(7):
        assert len(shown(client.get("/executions/").text)) == 50


def test_an_empty_list_says_whether_it_is_the_filters(signed_in: SignIn, owner: User, agent: Agent) -> None:
    client = signed_in(owner)
    assert "Nothing was submitted yet" in client.get("/executions/").text
    assert "Nothing matches" in client.get("/executions/?mine=true").text


def test_rows_are_renewed_and_newer_ones_counted(signed_in: SignIn, owner: User, agent: Agent) -> None:
    first, second = submitted(agent, ago=20), submitted(agent, ago=10)
    client = signed_in(owner)
    Execution.objects.filter(pk=second.pk).update(status=Status.CANCELLED, completed_at=timezone.now())
    submitted(agent)
    submitted(agent, Status.SUCCESS)
    text = client.get(f"/executions/rows/?ids={second.pk},{first.pk},junk&newest=1").text
    assert shown(text) == [second.pk, first.pk]
    assert 'data-newer="2"' in text
    assert 'data-state="cancelled"' in text
    assert 'data-newer="1"' in client.get(f"/executions/rows/?ids={second.pk}&newest=1&status=success").text
    assert 'data-newer="0"' in client.get(f"/executions/rows/?ids={second.pk}").text


def test_rows_of_others_are_not_told(signed_in: SignIn, stranger: User, agent: Agent) -> None:
    assert shown(signed_in(stranger).get(f"/executions/rows/?ids={submitted(agent).pk}&newest=1").text) == []


# -- One -------------------------------------------------------------------------------------------------------------
def test_the_page_of_one_shows_its_course_its_result_and_what_it_is_related_to(signed_in: SignIn, owner: User, agent: Agent) -> None:
    first = submitted(agent, Status.FAILED, ago=100, error_code="timeout", error="Too long")
    row = submitted(
        agent, Status.SUCCESS, ago=50, retry_of=first, response="Sunny", model="m-1", metadata={"order": 7}, dispatches=3,
        input_tokens=12, output_tokens=34, cost_usd=Decimal("0.5"), source_name="olga", slot_number=2,
    )  # fmt: skip
    client = signed_in(owner)
    text = client.get(f"/executions/{row.pk}/").text
    for part in (
        "Sunny",
        "m-1",
        "&quot;order&quot;: 7",
        "12 / 34",
        "$0.5",
        "olga",
        "slot 2",
        "ignored duplicate ×2",
        str(first.pk),
        "Submitted",
    ):
        assert part in text, part
    assert 'data-retry="' in text
    assert 'id="retry"' in text
    before = client.get(f"/executions/{first.pk}/").text
    assert f'href="/executions/{row.pk}/"' in before
    assert "Too long" in before


def test_one_in_line_says_why_it_waits_and_can_be_cancelled(signed_in: SignIn, owner: User, make_agent: Callable[..., Agent]) -> None:
    paused = make_agent(paused=True)
    text = signed_in(owner).get(f"/executions/{submitted(paused).pk}/parts/").text
    assert "at place <strong>1</strong>" in text
    assert "its agent is paused" in text
    assert 'id="cancel"' in text


def test_one_in_line_says_that_it_is_the_whole_fleet_that_is_paused(signed_in: SignIn, owner: User, agent: Agent) -> None:
    FleetSettings.objects.update(paused=True)
    text = signed_in(owner).get(f"/executions/{submitted(agent).pk}/parts/").text
    assert "the whole fleet is paused" in text
    assert "its agent is paused" not in text


def test_one_cancelled_by_somebody_is_not_shown_as_an_error(signed_in: SignIn, owner: User, agent: Agent) -> None:
    row = submitted(agent, Status.CANCELLED, error_code="cancelled")
    client = signed_in(owner)
    assert "error-heading" not in client.get(f"/executions/{row.pk}/").text
    why = submitted(agent, Status.CANCELLED, error_code="cancelled", error="Too late")
    text = client.get(f"/executions/{why.pk}/").text
    assert "Too late" in text
    assert "<code>cancelled</code>" not in text


def test_what_people_and_agents_wrote_is_text_and_nothing_else(signed_in: SignIn, owner: User, agent: Agent) -> None:
    row = submitted(
        agent, Status.FAILED, message=NASTY, response=NASTY, error=NASTY, system_prompt=NASTY, model=NASTY, metadata={NASTY: NASTY},
        source_name=NASTY, allowed_tools=[NASTY],
    )  # fmt: skip
    client = signed_in(owner)
    for path in ("/executions/", f"/executions/{row.pk}/"):
        text = client.get(path).text
        assert "<img src=x" not in text
        assert "</pre><script>" not in text
        assert "مرحبا 🎉" in text


def test_a_long_result_is_folded_and_one_too_long_for_a_page_is_cut(signed_in: SignIn, owner: User, agent: Agent) -> None:
    row = submitted(agent, Status.SUCCESS, response="x" * 300_000)
    text = signed_in(owner).get(f"/executions/{row.pk}/").text
    assert "300000 characters" in text
    assert len(text) < 250_000
    assert f"/api/executions/{row.pk}/" in text


def test_an_execution_of_a_deleted_agent_is_shown_and_can_not_be_retried(signed_in: SignIn, owner: User, agent: Agent) -> None:
    row = submitted(agent, Status.SUCCESS)
    Agent.objects.filter(pk=agent.pk).update(deleted_at=timezone.now())
    answer = signed_in(owner).get(f"/executions/{row.pk}/")
    assert answer.status_code == 200
    assert "deleted agent" in answer.text
    assert "data-retry" not in answer.text


def test_one_of_others_answers_as_one_that_is_not_there(signed_in: SignIn, stranger: User, agent: Agent) -> None:
    client, row = signed_in(stranger), submitted(agent)
    for known, unknown in (
        (f"/executions/{row.pk}/", f"/executions/{new_id()}/"),
        (f"/executions/{row.pk}/parts/", f"/executions/{new_id()}/parts/"),
    ):
        hidden, missing = client.get(known), client.get(unknown)
        assert hidden.status_code == missing.status_code == 404
        assert _without_tokens(hidden.text) == _without_tokens(missing.text)


def _without_tokens(text: str) -> str:
    return re.sub(r'(csrf-token" content|csrfmiddlewaretoken" value)="[^"]*"', "", text)
