"""Executions in the admin: looked at by the owners of their agents, cancelled and retried, never changed."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog.models import Execution, ExecutionEvent, Status, Trigger
from capacity.manager import CapacityManager
from fleet.models import Agent
from frontend.admin import executions, paging
from tests.frontend.admin_pages import AGENTS, EXECUTIONS, act, confirm, listed, said, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("gate")]
HOSTILE = "<script>alert(1)</script> مرحبا 🙂"


@pytest.fixture
def gate(valkey: object) -> None:
    """The slot store is open."""
    CapacityManager().rebuild()


def made(agent: Agent, **columns: Any) -> Execution:
    """A row of the agent's; it has ended well unless told otherwise."""
    now = timezone.now()
    values = {"message": "Look", "timeout_seconds": 60, "status": Status.SUCCESS, "completed_at": now, "source_name": "olga"} | columns
    return Execution.objects.create(agent=agent, agent_name=agent.name, **values)


@pytest.fixture
def theirs(make_agent: Any, stranger: User) -> Execution:
    """One that waits for an agent of somebody else's."""
    return made(make_agent(name="theirs", owner=stranger), message="secret", status=Status.QUEUED, completed_at=None)


def test_the_list_shows_what_is_the_readers_own(owner: User, superuser: User, agent: Agent, theirs: Execution) -> None:
    start = timezone.now() - timedelta(seconds=65)
    made(agent, message=HOSTILE, started_at=start, completed_at=start + timedelta(seconds=65), cost_usd="0.0123")
    made(agent, message="x" * 500, status=Status.FAILED, error_code="timeout")
    text = signed_in(owner).get(EXECUTIONS).text
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert "1 min 5 s" in text
    assert "$0.0123" in text
    assert "failed</span> · timeout" in text
    assert "x" * 121 not in text
    assert "secret" not in text
    assert "theirs" not in text
    assert "secret" in signed_in(superuser).get(EXECUTIONS).text


def test_rows_are_found_by_id_words_and_filters(owner: User, agent: Agent, theirs: Execution, make_agent: Any) -> None:
    second = make_agent(name="second")
    wanted = made(agent, message="Needle in hay", status=Status.FAILED, triggered_by=Trigger.MCP)
    made(second, message="other")
    client = signed_in(owner)
    for query, found in {
        f"q={wanted.pk}": 1, "q=needle": 1, "q=second": 1, f"q={theirs.pk}": 0, "q=secret": 0, "q=%00": 2,
        "status__exact=failed": 1, f"agent={second.pk}": 1, f"agent={theirs.agent_id}": 0, "since=1": 2, "triggered_by__exact=mcp": 1,
        "source=user": 2, "source=public": 0,
    }.items():  # fmt: skip
        answer = client.get(f"{EXECUTIONS}?{query}")
        assert (query, listed(answer)) == (query, found)
        assert "theirs" not in answer.text.replace("q=secret", "")
    for wrong in ("agent=x", "since=2", "agent__owner__password__startswith=a", "status__nonsense=1"):
        assert client.get(f"{EXECUTIONS}?{wrong}").status_code in {302, 400}


def test_a_long_table_is_never_counted_in_full_nor_searched_to_its_end(
    owner: User, superuser: User, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        made(agent, message=f"word {number}", created_at=timezone.now() - timedelta(seconds=number))
    monkeypatch.setattr(paging, "MOST_LISTED", 3)
    monkeypatch.setattr(executions, "SEARCHED", 2)
    with CaptureQueriesContext(connection) as queries:
        text = signed_in(superuser).get(EXECUTIONS).text
    assert "The newest 3 are listed." in text
    counting = [query["sql"] for query in queries if "COUNT(" in query["sql"]]
    assert counting
    assert all("LIMIT" in sql for sql in counting)
    reading = [query["sql"] for query in queries if '"backlog_execution"' in query["sql"] and "COUNT(" not in query["sql"]]
    assert all('"response"' not in sql for sql in reading)
    # Those with the moment of the last one looked through are looked through as well.
    assert listed(signed_in(owner).get(f"{EXECUTIONS}?q=word")) == 3


def test_one_is_shown_with_its_events_and_cannot_be_changed(owner: User, agent: Agent, theirs: Execution) -> None:
    first = made(agent)
    row = made(agent, message=HOSTILE, response="<b>done</b>", retry_of=first)
    ExecutionEvent.objects.create(execution=row, seq=1, type="tool", data={"name": "<i>look</i>"})
    client = signed_in(owner)
    page = client.get(f"{EXECUTIONS}{row.pk}/change/").text
    for part in (
        "&lt;script&gt;",
        "&lt;b&gt;done",
        "&lt;i&gt;look",
        f"/executions/{row.pk}/",
        f"{EXECUTIONS}{first.pk}/",
        f"{AGENTS}{agent.pk}/",
    ):
        assert part in page
    assert 'name="_save"' not in page
    for path, status in ((f"{row.pk}/change/", 403), (f"{row.pk}/delete/", 403), ("add/", 403)):
        assert client.post(f"{EXECUTIONS}{path}", {"message": "changed", "status": "failed", "post": "yes"}).status_code == status
    for path in (f"{theirs.pk}/change/", f"{theirs.pk}/history/", "nonsense/change/"):
        answer = client.get(f"{EXECUTIONS}{path}")
        assert (answer.status_code, "secret" in answer.text) == (302, False)
    row.refresh_from_db()
    assert row.message == HOSTILE


def test_what_waits_is_cancelled_once_confirmed_and_what_ended_stays(owner: User, agent: Agent, theirs: Execution) -> None:
    waiting, ended = made(agent, message="waits", status=Status.QUEUED, completed_at=None), made(agent)
    client = signed_in(owner)
    assert "waits" in act(client, EXECUTIONS, "cancel", waiting, ended, theirs).text
    waiting.refresh_from_db()
    assert waiting.status == Status.QUEUED
    assert confirm(client, EXECUTIONS, "cancel", waiting, ended, theirs) == ["1 cancelled, 0 being stopped, 1 had ended already."]
    assert {row.pk: row.status for row in Execution.objects.all()} == {
        waiting.pk: Status.CANCELLED,
        ended.pk: Status.SUCCESS,
        theirs.pk: Status.QUEUED,
    }


def test_what_ended_is_retried_and_each_refusal_is_told(owner: User, agent: Agent, theirs: Execution) -> None:
    Agent.objects.update(paused=True)
    ended, waiting = made(agent, message="again"), made(agent, status=Status.QUEUED, completed_at=None)
    client = signed_in(owner)
    assert "again" in act(client, EXECUTIONS, "retry", ended, waiting).text
    told = confirm(client, EXECUTIONS, "retry", ended, waiting, theirs)
    again = Execution.objects.get(retry_of=ended)
    assert (again.message, again.submitted_by) == ("again", owner)
    assert told == [f"Retried: {again.pk}.", f"Not retried: {waiting.pk} (Execution {waiting.pk} is still queued)."]


def test_one_action_takes_a_page_of_rows_at_most(owner: User, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "MOST", 1)
    rows = [made(agent) for _ in range(2)]
    assert said(act(signed_in(owner), EXECUTIONS, "retry", rows[0], select_across="1")) == ["Choose at most 1 at once; nothing was done."]
    assert Execution.objects.count() == 2
