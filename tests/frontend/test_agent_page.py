"""One agent's page as the server makes it: who sees what, in which state, by how many queries."""

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog.models import Execution, Status
from capacity import slots
from capacity.leases import Lease
from core.ids import new_id, new_token
from fleet import audit
from fleet.models import Agent, FleetSettings, Share
from fleet.principals import Principal
from frontend.pages import agent_past
from runtime.standing import standing
from tests.runtime.histories import remember_runs

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
#: A name that breaks out of whatever doesn't escape it, and one that turns its line around.
HOSTILE = '"><script>alert(1)</script>&amp;\u202e\u05d0 👩\u200d🔬'


def submitted(agent: Agent, **columns: Any) -> Execution:
    """A row of the agent's, waiting unless told otherwise."""
    values = {"message": "Look at the weather", "timeout_seconds": 60, "status": Status.QUEUED} | columns
    return Execution.objects.create(agent=agent, agent_name=agent.name, **values)


def running(agent: Agent, *, started: bool = True, **columns: Any) -> Execution:
    """A row that holds a slot, in the database and in the store."""
    lease = Lease(agent=agent.name, execution_id=new_id(), token=new_token(), timeout_seconds=60)
    number = slots.acquire(lease=lease, limit=32, fleet_limit=None, preview="as the store shows it").number
    if started:
        slots.renew(leases=[lease], lease_seconds=30)
    held = {"status": Status.RUNNING, "slot_token": lease.token, "slot_number": number, "started_at": timezone.now() if started else None}
    return submitted(agent, id=lease.execution_id, **held | columns)


def page_of(client: Client, agent: Agent) -> str:
    """The page's text."""
    answer = client.get(f"/agents/{agent.name}/")
    assert answer.status_code == 200
    return answer.text


def part_of(text: str, heading: str) -> str:
    """The part of the page under this heading."""
    found = re.search(rf'<section class="panel" id="{heading}".*?</section>', text, re.DOTALL)
    assert found
    return found[0]


# -- Slots -----------------------------------------------------------------------------------------------------------
def test_the_board_tells_of_each_slot_who_holds_it_since_when_on_whose_lease(signed_in: SignIn, owner: User, agent: Agent) -> None:
    runs, starts = running(agent, source_name="sten", message="<b>runs</b>"), running(agent, started=False)
    board = part_of(page_of(signed_in(owner), agent), "slots")
    assert [re.findall(r'data-state="(\w+)">\s*<th[^>]*>(\d)', row) for row in board.split("<tr ")[2:]] == [
        [("running", "1")], [("starting", "2")], [("free", "3")],
    ]  # fmt: skip
    assert f'href="/executions/{runs.id}/">&lt;b&gt;runs&lt;/b&gt;</a>' in board
    assert "sten" in board
    assert board.count('data-local="left"') == 2
    assert f'data-cancel="{runs.id}" data-running' in board
    assert f'data-release="{starts.id}" data-slot="2"' in board


def test_a_lost_holder_is_shown_as_lost_and_one_that_was_asked_to_stop_as_cancelling(
    signed_in: SignIn, owner: User, agent: Agent, age_slot: Callable[..., None]
) -> None:
    lost = running(agent)
    stopping = running(agent, cancel_requested_at=timezone.now())
    age_slot(agent.name, lost.id, 40)
    slots.renew(leases=[Lease(agent=agent.name, execution_id=stopping.id, token=stopping.slot_token, timeout_seconds=60)], lease_seconds=30)
    slots.reclaim(lease_seconds=30)  # the first pass after a pause may give a fresh lease
    age_slot(agent.name, lost.id, 40)
    slots.reclaim(lease_seconds=30)
    board = part_of(page_of(signed_in(owner), agent), "slots")
    assert f'data-release="{lost.id}" data-slot="1" data-state="lost"' in board
    assert f'data-release="{stopping.id}" data-slot="2" data-state="cancelling"' in board
    assert f'data-cancel="{stopping.id}"' not in board


def test_slots_above_a_lowered_limit_stay_on_the_board(signed_in: SignIn, owner: User, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1)
    for _ in range(2):
        running(agent)
    text = page_of(signed_in(owner), agent)
    assert part_of(text, "slots").count("data-release") == 2
    assert 'data-health="over_limit">Over limit' in text


def test_what_a_deleted_agent_of_the_name_still_holds_can_be_released_but_not_read(
    signed_in: SignIn, owner: User, stranger: User, make_agent: Callable[..., Agent]
) -> None:
    former = make_agent(name="again", owner=stranger, deleted_at=timezone.now())
    held = running(former, message="none of your business")
    board = part_of(page_of(signed_in(owner), make_agent(name="again")), "slots")
    assert f'data-release="{held.id}"' in board
    assert "none of your business" not in board
    assert "as the store shows it" not in board
    told = signed_in(owner).get("/api/agents/again/capacity").json()
    assert [(slot["execution_id"], slot["message_preview"]) for slot in told["slots"]] == [(str(held.id), "")]
    assert f"/executions/{held.id}/" not in board


def test_without_the_slot_store_the_records_are_shown_and_nothing_is_called_free(
    signed_in: SignIn, owner: User, agent: Agent, store_out_of_reach: Callable[[bool], None]
) -> None:
    held = running(agent)
    client = signed_in(owner)
    FleetSettings.objects.update(max_concurrent_tasks=5)
    store_out_of_reach(True)
    text = page_of(client, agent)
    board = part_of(text, "slots")
    assert f'data-cancel="{held.id}"' in board
    assert "free" not in board
    assert 'data-health="unknown"' in text
    assert "what limits it is unknown now" in text


# -- The line --------------------------------------------------------------------------------------------------------
def test_the_backlog_is_in_order_with_reason_and_expected_start(signed_in: SignIn, owner: User, agent: Agent) -> None:
    first, urgent = submitted(agent, message="first <b>"), submitted(agent, message="urgent", priority=9)
    client = signed_in(owner)
    line = part_of(page_of(client, agent), "backlog")
    assert line.index(str(urgent.id)) < line.index(str(first.id))
    assert "first &lt;b&gt;" in line
    assert line.count("a free slot") == line.count("not known") == 2
    assert 'id="clear" type="button" data-count="2"' in line
    remember_runs(agent, [20.0] * 8)
    told = standing(Execution.objects.select_related("agent").get(pk=first.pk))
    assert told.estimated_start is not None
    line = part_of(page_of(client, agent), "backlog")
    assert "not known" not in line
    assert told.estimated_start.latest.strftime("%Y-%m-%dT%H:") in line


def test_a_long_backlog_is_capped_and_counted_whole(signed_in: SignIn, owner: User, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(paused=True, depth=1000)
    Execution.objects.bulk_create(
        Execution(agent=agent, agent_name=agent.name, message="m" * 5000, timeout_seconds=60, status=Status.QUEUED) for _ in range(1000)
    )
    text = page_of(signed_in(owner), agent)
    assert text.count('data-label="Place"') == 50
    assert "and 950 more" in text
    assert 'data-count="1000"' in text
    assert "the agent is paused" in text
    assert len(text) < 120_000


# -- The past --------------------------------------------------------------------------------------------------------
def test_runs_and_cost_are_those_of_the_last_day_and_week(signed_in: SignIn, owner: User, agent: Agent, monkeypatch: Any) -> None:
    now = timezone.now()
    for days, status, cost in [(0, Status.SUCCESS, "0.5"), (0, Status.FAILED, None), (2, Status.SUCCESS, "1.25"), (9, Status.SUCCESS, "9")]:
        ended = now - timedelta(days=days, seconds=1)
        submitted(agent, status=status, started_at=ended, completed_at=ended, cost_usd=cost)
    day, week = agent_past.spent_of(agent)
    assert (day.runs, day.failed, day.percent, day.cost) == (2, 1, 50, Decimal("0.5"))
    assert (week.runs, week.percent, week.cost, week.partial) == (3, 66, Decimal("1.75"), False)
    spent = part_of(page_of(signed_in(owner), agent), "spent")
    assert "$0.50" in spent
    assert "$1.75" in spent
    monkeypatch.setattr(agent_past, "MOST_SUMMED", 2)
    day, week = agent_past.spent_of(agent)
    assert (week.runs, week.partial) == (2, True)


def test_a_week_without_runs_has_no_cost_and_no_rate(signed_in: SignIn, owner: User, agent: Agent) -> None:
    spent = part_of(page_of(signed_in(owner), agent), "spent")
    assert spent.count("no cost told") == 2
    assert "%" not in spent


def test_recent_executions_are_those_that_ended_however_many_wait(signed_in: SignIn, owner: User, agent: Agent) -> None:
    done = submitted(agent, message="done", status=Status.FAILED, error="no luck", completed_at="2026-01-02T12:03:05Z")
    for _ in range(21):
        submitted(agent)
    recent = part_of(page_of(signed_in(owner), agent), "recent")
    assert recent.count(f"/executions/{done.id}/") == 1
    assert "no luck" in recent
    assert "never ran" in recent
    assert recent.count("<tr ") == 2


# -- Capacity --------------------------------------------------------------------------------------------------------
def test_the_panel_says_what_limits_the_agent_until_when_and_who_set_it(
    signed_in: SignIn, owner: User, make_agent: Callable[..., Agent]
) -> None:
    until = timezone.now() + timedelta(hours=4)
    agent = make_agent(limit=8, base_max_parallel_tasks=2, override_until=until, changed_by=owner, changed_at=timezone.now())
    client = signed_in(owner)
    text = page_of(client, agent)
    assert "a temporary limit" in text
    assert "then 2 again" in text
    assert until.strftime("%Y-%m-%dT%H:%M:%SZ") in text
    assert 'by <span dir="auto">olga</span>' in text
    assert 'id="end-override"' in text
    FleetSettings.objects.update(max_parallel_tasks_ceiling=5)
    text = page_of(client, agent)
    assert "<strong>5</strong> at once" in text
    assert ", above the ceiling of 5" in text
    assert 'min="1" max="5" value="8"' in text
    FleetSettings.objects.update(paused=True)
    assert "The whole fleet is paused" in page_of(client, agent)


def test_the_last_changes_are_told_in_words_to_owners_alone(signed_in: SignIn, owner: User, stranger: User, agent: Agent) -> None:
    Share.objects.create(agent=agent, user=stranger)
    by = Principal.of_user(owner)
    audit.record(by, "max_parallel_tasks", agent=agent, before=3, after=5)
    audit.record(by, "paused", agent=agent, before=False, after=True)
    audit.record(by, "queue_cleared", agent=agent, before=7, after=0)
    audit.record(by, "owner", agent=agent, before=HOSTILE, after="x" * 200)
    text = page_of(signed_in(owner), agent)
    for told in ("Limit: 3 → 5", "Paused", "Backlog cleared: 7", "Owner"):
        assert f'<span dir="auto">{told}</span>' in text
    assert 'id="changes"' not in page_of(signed_in(stranger), agent)


# -- Rights ----------------------------------------------------------------------------------------------------------
def test_a_guest_reads_and_submits_and_cancels_their_own_alone(signed_in: SignIn, agent: Agent, stranger: User) -> None:
    Share.objects.create(agent=agent, user=stranger)
    own, other = submitted(agent, submitted_by=stranger), submitted(agent)
    own_run, other_run = running(agent, submitted_by=stranger), running(agent)
    text = page_of(signed_in(stranger), agent)
    for row in (own, own_run):
        assert f'data-cancel="{row.id}"' in text
    for row in (other, other_run):
        assert f'data-cancel="{row.id}"' not in text
        assert f"/executions/{row.id}/" in text
    for control in ('id="limit"', 'id="pause"', 'id="clear"', "data-release", 'id="end-override"'):
        assert control not in text
    assert '<form id="submit"' in text


def test_a_superuser_steers_everybodys_agent(signed_in: SignIn, agent: Agent, superuser: User) -> None:
    submitted(agent)
    text = page_of(signed_in(superuser), agent)
    for control in ('id="limit"', 'id="pause"', 'id="clear"', "data-cancel="):
        assert control in text


# -- Renewal ---------------------------------------------------------------------------------------------------------
def test_a_renewal_brings_each_part_once_and_the_past_only_when_asked(signed_in: SignIn, owner: User, agent: Agent) -> None:
    client = signed_in(owner)
    whole = page_of(client, agent)
    for query, spent in (("", False), ("?past", True)):
        text = client.get(f"/agents/{agent.name}/parts/{query}").text
        ids = re.findall(r'<\w+[^>]* id="([a-z]+)"[^>]* data-part', text)
        assert ids == ["health", "capacity", "slots", "backlog", *(["spent"] if spent else []), "recent"]
        assert "<form" not in text
    assert sorted(re.findall(r'<\w+[^>]* id="([a-z]+)"[^>]* data-part', whole)) == sorted(ids)


def test_a_page_and_its_renewal_cost_the_same_queries_however_much_there_is(
    signed_in: SignIn, owner: User, make_agent: Callable[..., Agent]
) -> None:
    client, little, much = signed_in(owner), make_agent(), make_agent(limit=10, depth=1000)
    for agent, count in ((little, 1), (much, 8)):
        for _ in range(count):
            running(agent)
            submitted(agent, submitted_by=owner)
            audit.record(Principal.of_user(owner), "paused", agent=agent, before=False, after=True)
        remember_runs(agent, [20.0] * 8 * count)
    for path, most in (("/agents/{}/", 19), ("/agents/{}/parts/", 17)):
        counts = []
        for agent in (little, much):
            with CaptureQueriesContext(
                connection,
            ) as queries:
                assert client.get(path.format(agent.name)).status_code == 200
            counts.append(len(queries))
        assert counts[0] == counts[1]
        assert counts[1] <= most, [query["sql"] for query in queries]


def test_a_renewal_after_the_session_ended_leads_to_sign_in(client: Client, agent: Agent) -> None:
    answer = client.get(f"/agents/{agent.name}/parts/")
    assert (answer.status_code, answer["Location"]) == (302, f"/login/?next=/agents/{agent.name}/parts/")


# -- What people write -----------------------------------------------------------------------------------------------
def test_whatever_people_write_is_text(signed_in: SignIn, owner: User, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(name="a" * 63, description=HOSTILE * 20)
    running(agent, message=HOSTILE, source_name=HOSTILE)
    submitted(agent, message=HOSTILE)
    submitted(agent, message=HOSTILE, status=Status.SUCCESS, response=HOSTILE, started_at=timezone.now(), completed_at=timezone.now())
    submitted(agent, message=HOSTILE, status=Status.FAILED, error=HOSTILE, started_at=timezone.now(), completed_at=timezone.now())
    text = page_of(signed_in(owner), agent)
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)") >= 8
    for user_text in re.findall(r"<([^<>]*)>[^<>]*&lt;script&gt;", text):
        assert 'dir="auto"' in user_text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)
