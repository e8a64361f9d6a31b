"""Actions on agents in the admin: confirmed, told agent by agent, and nobody's but their owners'."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog import services as backlog
from backlog.models import Execution, Status
from capacity.manager import CapacityManager
from fleet.models import Agent, AuditEntry, Share
from frontend.admin import agent_actions
from tests.frontend.admin_pages import AGENTS, AUDIT, EXECUTIONS, SHARES, act, confirm, listed, said, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("gate")]
ACTIONS = ("pause", "resume", "clear_backlog", "release_lost")


@pytest.fixture
def gate(valkey: object) -> None:
    """The slot store is open."""
    CapacityManager().rebuild()


@pytest.fixture
def submit(api: Any) -> Any:
    """`submit(agent, count)`: so many tasks of its owner's."""

    def send(agent: Agent, count: int) -> None:
        for number in range(count):
            answer = api(agent.owner).post(f"/api/agents/{agent.name}/task", {"message": f"m{number}", "async_mode": True}, format="json")
            assert answer.status_code == 202

    return send


def lose(agent: Agent) -> Execution:
    """One of its runs, over without a proof that its work is: its slot is still held."""
    row = Execution.objects.filter(agent=agent, status=Status.RUNNING).first()
    assert row is not None
    assert row.slot_token is not None
    Execution.objects.filter(pk=row.pk).update(started_at=timezone.now())
    assert backlog.fence_lost(execution_id=row.pk, token=row.slot_token, error_code="worker_lost", error="gone")
    row.refresh_from_db()
    return row


def counts(agent: Agent) -> tuple[int, int]:
    """How many hold a slot, how many wait."""
    rows = Execution.objects.filter(agent=agent)
    return rows.filter(slot_token__isnull=False).count(), rows.filter(status=Status.QUEUED).count()


def test_agents_are_paused_and_resumed_once_the_page_that_names_them_is_confirmed(
    submit: Any, make_agent: Any, owner: User, agent: Agent
) -> None:
    client, other = signed_in(owner), make_agent(name="second")
    submit(agent, 5)
    page = act(client, AGENTS, "pause", agent, other).text
    assert "3 of 3 slots in use, 2 waiting" in page
    assert "second" in page
    assert not Agent.objects.filter(paused=True).exists()
    assert confirm(client, AGENTS, "pause", agent, other) == ["Paused: agent-1, second."]
    assert Agent.objects.filter(paused=True).count() == 2
    row = client.get(AGENTS).text
    assert 'data-paused="agent-1">Paused<' in row
    assert "icon-no" not in row
    assert listed(client.get(f"{AGENTS}?paused__exact=1")) == 2
    assert confirm(client, AGENTS, "resume", agent) == ["Resumed: agent-1."]
    assert [(entry.action, entry.after, entry.actor) for entry in AuditEntry.objects.filter(agent=agent)] == [
        ("paused", False, owner),
        ("paused", True, owner),
    ]


def test_a_backlog_is_cleared_and_what_holds_a_slot_stays(submit: Any, make_agent: Any, owner: User, agent: Agent) -> None:
    client, idle = signed_in(owner), make_agent(name="idle")
    submit(agent, 5)
    page = act(client, AGENTS, "clear_backlog", agent, idle).text
    assert "2 waiting" in page
    assert 'dir="auto">idle<' not in page
    assert counts(agent) == (3, 2)
    assert confirm(client, AGENTS, "clear_backlog", agent) == ["Cleared: agent-1 (2 cancelled)."]
    assert counts(agent) == (3, 0)
    assert "nothing to do" in said(act(client, AGENTS, "clear_backlog", agent))[0]


def test_lost_slots_are_released_and_no_others(submit: Any, owner: User, agent: Agent) -> None:
    client = signed_in(owner)
    submit(agent, 3)
    lost = lose(agent)
    assert listed(client.get(f"{AGENTS}?load=lost")) == 1
    page = act(client, AGENTS, "release_lost", agent).text
    assert f"slot {lost.slot_number}: {lost.pk} (worker_lost" in page
    assert counts(agent) == (3, 0)
    assert confirm(client, AGENTS, "release_lost", agent) == ["Released: agent-1 (1 freed)."]
    assert counts(agent) == (2, 0)
    lost.refresh_from_db()
    assert (lost.status, lost.slot_token) == (Status.FAILED, None)


def test_a_refusal_is_told_for_its_agent_and_stops_no_other(
    make_agent: Any, owner: User, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, gone, original = signed_in(owner), make_agent(name="gone"), agent_actions._pause

    def deleted_meanwhile(*args: Any, **kwargs: Any) -> Any:
        Agent.objects.filter(pk=gone.pk).update(deleted_at=timezone.now())
        return original(*args, **kwargs)

    monkeypatch.setattr(agent_actions, "_pause", deleted_meanwhile)
    assert confirm(client, AGENTS, "pause", agent, gone) == ["Paused: agent-1.", "Not paused: gone (Agent not found)."]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_crafted_post_reaches_no_agent_of_somebody_elses(
    submit: Any, make_agent: Any, owner: User, agent: Agent, stranger: User, action: str
) -> None:
    theirs = make_agent(name="theirs", owner=stranger, limit=1, paused=action == "resume")
    submit(theirs, 1)
    if action != "resume":
        submit(theirs, 1)
        lose(theirs)
    before = (counts(theirs), Agent.objects.get(pk=theirs.pk).paused, AuditEntry.objects.count())
    for fields in ({}, {"confirmed": "yes"}, {"confirmed": "yes", "select_across": "1"}):
        answer = act(signed_in(owner), AGENTS, action, theirs, **fields)
        assert "Nothing was done" in said(answer)[0]
        assert "theirs" not in answer.text
    assert (counts(theirs), Agent.objects.get(pk=theirs.pk).paused, AuditEntry.objects.count()) == before


def test_select_all_asks_about_all_and_does_what_was_asked(make_agent: Any, owner: User, stranger: User, agent: Agent) -> None:
    make_agent(name="theirs", owner=stranger)
    late_ask = act(signed_in(owner), AGENTS, "pause", agent, select_across="1").text
    assert late_ask.count('name="_selected_action"') == 1
    make_agent(name="late")
    assert confirm(signed_in(owner), AGENTS, "pause", agent) == ["Paused: agent-1."]
    assert list(Agent.objects.filter(paused=True)) == [agent]


def test_what_is_no_id_does_nothing(owner: User, agent: Agent) -> None:
    client = signed_in(owner)
    for nonsense in ("nonsense", "9" * 30, "-1", "1 OR 1=1", ""):
        assert said(act(client, AGENTS, "pause", nonsense, confirmed="yes"))
    assert said(act(client, EXECUTIONS, "cancel", "nonsense", confirmed="yes"))
    assert not Agent.objects.filter(paused=True).exists()


def test_filters_find_agents_by_their_load(
    submit: Any, make_agent: Any, owner: User, superuser: User, stranger: User, agent: Agent
) -> None:
    over = make_agent(name="over", limit=2)
    submit(over, 2)
    Agent.objects.filter(pk=over.pk).update(max_parallel_tasks=1)
    submit(agent, 4)
    make_agent(name="theirs", owner=stranger)
    client = signed_in(owner)
    assert [listed(client.get(f"{AGENTS}?load={load}")) for load in ("waiting", "full", "over", "lost")] == [1, 2, 1, 0]
    assert client.get(f"{AGENTS}?load=nonsense").status_code == 302
    assert "By owner" not in client.get(AGENTS).text
    assert "By owner" in signed_in(superuser).get(AGENTS).text


def test_the_list_asks_as_often_for_many_agents_as_for_few(make_agent: Any, owner: User, agent: Agent) -> None:
    client = signed_in(owner)

    def asked(path: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200
        return len(queries)

    few = [asked(path) for path in (AGENTS, EXECUTIONS, AUDIT, SHARES, "/admin/")]
    for number in range(20):
        made = make_agent(name=f"more-{number}")
        Execution.objects.create(agent=made, agent_name=made.name, message="m", timeout_seconds=60, status=Status.QUEUED)
        AuditEntry.objects.create(agent=made, actor=owner, actor_name="olga", action="paused", after=True)
        Share.objects.create(agent=made, user=User.objects.create_user(f"friend-{number}"))
    assert [asked(path) for path in (AGENTS, EXECUTIONS, AUDIT, SHARES, "/admin/")] == few
    assert max(few) <= 16


def test_the_first_page_counts_what_is_the_readers_own(
    submit: Any, make_agent: Any, owner: User, stranger: User, superuser: User, agent: Agent, store_out_of_reach: Any
) -> None:
    submit(agent, 5)
    submit(make_agent(name="theirs", owner=stranger), 1)

    def tiles(user: User) -> list[str]:
        return re.findall(r"<strong>([^<]+)</strong> <span>", signed_in(user).get("/admin/").text)

    assert tiles(owner) == ["1", "3 / 3", "2", "0", "0"]
    assert tiles(superuser) == ["2", "4 / 6", "2", "0", "0"]
    store_out_of_reach(True)
    assert tiles(owner)[1] == "unknown / 3"


def test_the_guide_is_for_who_may_enter(owner: User, agent: Agent, stranger: User) -> None:
    text = signed_in(owner).get("/admin/guide/").text
    assert "<h1>For owners of agents</h1>" in text
    assert '.md"' not in text
    assert signed_in(stranger).get("/admin/guide/", follow=True).status_code == 403


# -- Shares ----------------------------------------------------------------------------------------------------------------
def test_an_agent_is_shared_and_that_is_taken_back(owner: User, stranger: User, agent: Agent) -> None:
    client = signed_in(owner)
    assert "was added" in said(client.post(f"{SHARES}add/", {"agent": agent.pk, "username": stranger.username}, follow=True))[0]
    share = Share.objects.get(agent=agent, user=stranger)
    assert stranger.username in client.get(f"{AGENTS}{agent.pk}/change/").text
    again = client.post(f"{SHARES}add/", {"agent": agent.pk, "username": stranger.username})
    assert "shared with them already" in again.text
    client.post(f"{SHARES}{share.pk}/delete/", {"post": "yes"})
    assert not Share.objects.exists()
    assert [entry.action for entry in AuditEntry.objects.filter(agent=agent)] == ["unshared", "shared"]


def test_shares_of_others_are_neither_seen_nor_changed(owner: User, stranger: User, superuser: User, agent: Agent, make_agent: Any) -> None:
    theirs = make_agent(name="theirs", owner=stranger)
    share = Share.objects.create(agent=theirs, user=superuser)
    client = signed_in(owner)
    assert "theirs" not in client.get(SHARES).text
    assert "errorlist" in client.post(f"{SHARES}add/", {"agent": theirs.pk, "username": owner.username}).text
    for path in (f"{SHARES}{share.pk}/change/", f"{SHARES}{share.pk}/delete/", f"{SHARES}{share.pk}/history/"):
        assert client.post(path, {"post": "yes"}).status_code in {302, 403, 404}
    act(client, SHARES, "delete_selected", share, post="yes")
    assert Share.objects.get() == share
    for wrong in ("nobody-of-that-name", owner.username, ""):
        assert "errorlist" in client.post(f"{SHARES}add/", {"agent": agent.pk, "username": wrong}).text
    assert client.get("/admin/autocomplete/?app_label=fleet&model_name=share&field_name=user&term=").status_code == 403
