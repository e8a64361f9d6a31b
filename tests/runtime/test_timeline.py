"""What ran and waited in a span of time, as the API tells it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog import history
from backlog.models import Execution, Status
from core.ids import new_id, new_token
from fleet.models import Agent, Share

pytestmark = pytest.mark.django_db

Ask = Callable[..., Any]


@pytest.fixture
def ask(api: Any, owner: User) -> Ask:
    """`ask(begin, end, by=, **query)`: the answer about the span, whose ends are minutes before now."""

    def get(begin: float, end: float = 0, *, by: User | str = owner, headers: dict[str, str] | None = None, **query: Any) -> Any:
        return api(by).get("/api/timeline/", {"from": before(begin).isoformat(), "to": before(end).isoformat(), **query}, headers=headers)

    return get


NOW = timezone.now()


def before(minutes: float) -> datetime:
    """A moment, so many minutes before the tests began."""
    return NOW - timedelta(minutes=minutes)


def row(agent: Agent, queued: float, started: float | None = None, ended: float | None = None, **columns: Any) -> str:
    """An execution by its moments, in minutes before now; its id."""
    status = Status.SUCCESS if ended is not None else Status.QUEUED if started is None else Status.RUNNING
    values = {
        "message": "hello", "timeout_seconds": 900, "status": status, "slot_number": None if started is None else 1,
        "slot_token": new_token() if status == Status.RUNNING else None, "created_at": before(queued), "queued_at": before(queued),
        "started_at": None if started is None else before(started), "completed_at": None if ended is None else before(ended),
    }  # fmt: skip
    return str(Execution.objects.create(id=new_id(), agent=agent, agent_name=agent.name, **(values | columns)).pk)


def ids(answer: Any) -> list[str]:
    """The executions that were told."""
    assert answer.status_code == 200, answer.content
    return list(answer.json()["columns"]["id"])


def test_whatever_overlaps_the_span_is_told_and_nothing_else(ask, agent):
    row(agent, 90, 80, 61)
    row(agent, 9, 8, 7)
    into, out, around, within = row(agent, 70, 65, 59), row(agent, 20, 15, 5), row(agent, 99, 98, 1), row(agent, 40, 39, 38)
    waited, runs, waits = row(agent, 65, None, 15, status=Status.CANCELLED), row(agent, 50, 30), row(agent, 11)
    row(agent, 8)
    assert ids(ask(60, 10)) == [runs, waits, around, out, waited, within, into]


def test_a_run_is_told_column_by_column(ask, agent):
    first = row(agent, 50, 45, 44, status=Status.FAILED, error_code="lease_lost", slot_number=3, message="<b>" + "é" * 60)
    again = row(agent, 40, 39, 38, retry_of_id=first, message="again")
    body = ask(60).json()
    assert body["agents"] == [agent.name]
    assert [body["statuses"][number] for number in body["columns"]["status"]] == ["success", "failed"]
    assert {name: values[1] for name, values in body["columns"].items() if name != "status"} == {
        "id": first, "agent": 0, "slot_number": 3, "queued_at": round(before(50).timestamp() * 1000), "started_after": 300_000,
        "completed_after": 360_000, "error_code": "lease_lost", "retry_of": None, "message_preview": "<b>" + "é" * 37,
    }  # fmt: skip
    assert (body["columns"]["id"][0], body["columns"]["retry_of"][0], body["columns"]["error_code"][0]) == (again, first, None)
    assert (body["next"], body["truncated"]) == (None, False)
    assert body["from"] < body["to"] <= body["server_time"]


def test_pages_hold_each_run_once_the_last_one_first(ask, agent, api, owner):
    runs = row(agent, 30, 29)
    ended = [row(agent, 50, 40, 30 + number // 2) for number in range(7)]  # pairs end in one moment
    answer = ask(60, limit=2)
    found, pages = ids(answer), 1
    while url := answer.json()["next"]:
        answer = api(owner).get(url)
        found, pages = found + ids(answer), pages + 1
    assert pages == 4
    assert found[0] == runs
    assert sorted(found[1:]) == sorted(ended)
    assert found[-1] == ended[-1]


def test_more_that_wait_than_are_told_are_said_to_be_left_out(ask, agent, monkeypatch):
    monkeypatch.setattr("runtime.timeline.MOST_WAITING", 2)
    waiting = [row(agent, 30 - number) for number in range(3)]
    answer = ask(60)
    assert ids(answer) == waiting[:2]
    assert answer.json()["truncated"] is True


def test_only_agents_that_one_may_see_are_told_of(ask, make_agent, stranger, superuser, make_key):
    mine, theirs = make_agent(), make_agent(owner=stranger)
    one, other = row(mine, 30, 20, 10), row(theirs, 30, 20, 11)
    assert ids(ask(60)) == [one]
    assert ids(ask(60, by=stranger)) == [other]
    assert ids(ask(60, by=superuser)) == ids(ask(60, by=make_key("system", owner=superuser))) == [one, other]
    assert ids(ask(60, agent=theirs.name)) == ids(ask(60, agent="nobody")) == []
    assert ids(ask(60, by=superuser, agent=[theirs.name, "nobody"])) == [other]
    Share.objects.create(agent=theirs, user=User.objects.get(username="olga"))
    assert ids(ask(60, agent=[mine.name, theirs.name])) == [one, other]
    Agent.objects.filter(pk=theirs.pk).update(deleted_at=NOW)
    assert ask(60).json()["agents"] == [mine.name]


def test_without_a_span_it_tells_the_last_hour(api, owner, agent):
    row(agent, 90, 80, 61)
    # `NOW` is when this file was read, which may be minutes ago.
    inside = row(agent, 90, 80, 30)
    assert ids(api(owner).get("/api/timeline")) == [inside]


def test_an_answer_that_is_known_is_not_sent_again(ask, agent):
    row(agent, 30, 29, 10)
    answer = ask(60)
    known = {"If-None-Match": answer["ETag"]}
    again = ask(60, headers=known)
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", answer["ETag"])
    assert "private" in answer["Cache-Control"]
    row(agent, 20, 19)
    assert ask(60, headers=known).status_code == 200


def test_what_can_not_be_a_span_is_refused(api, owner):
    day = "2030-01-{:02}T12:00:00Z"
    told = {
        f"from={day.format(2)}&to={day.format(2)}": "from must be before to",
        f"from={day.format(3)}&to={day.format(2)}": "from must be before to",
        f"from=2029-11-01T00:00:00Z&to={day.format(2)}": "from and to may be at most 31 days apart",
        "from=yesterday": "from must be a time such as 2030-01-31T12:00:00Z",
        "from=2030-01-01": "from must be a time such as 2030-01-31T12:00:00Z",
        f"to={day.format(2)}&to={day.format(3)}": "to may be given only once",
        "limit=20001": "limit must be an integer between 1 and 20000",
        "limit=0": "limit must be an integer between 1 and 20000",
        "cursor=x": "cursor is not one of this list",
        "agent=%00": "agent must be text of at most 500 characters",
        "&".join(["agent=a"] * 201): "agent may be given at most 200 times",
    }
    for query, sentence in told.items():
        answer = api(owner).get(f"/api/timeline/?{query}")
        assert (answer.status_code, answer.json().get("detail")) == (400, sentence), query
    assert "the valid ones are from, to, agent, limit, cursor" in api(owner).get("/api/timeline/?x=1").json()["detail"]


@pytest.mark.parametrize("to", ["0001-01-01T00:00:00Z", "0001-01-01T00:30:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"])
def test_spans_at_the_ends_of_time_are_answered(api, owner, agent, to):
    assert api(owner).get("/api/timeline/", {"to": to}).status_code in (200, 400)
    assert api(owner).get("/api/timeline/", {"from": to, "to": to}).status_code == 400


def test_the_number_of_queries_does_not_grow(ask, make_agent):
    def counted() -> int:
        with CaptureQueriesContext(connection) as captured:
            ask(60)
        return len(captured)

    row(make_agent(), 30, 20, 10)
    few = counted()
    for agent in [make_agent() for _ in range(5)]:
        for _ in range(5):
            row(agent, 30, 20, 10)
            row(agent, 30)
    assert counted() == few


def test_what_has_ended_is_found_by_its_index(agent):
    rows = history.ended_of([agent.pk, agent.pk + 1], begin=before(60), end=before(10)).order_by("-completed_at", "-id")[:5001]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:  # a table of no rows is read whole otherwise
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_sort = off")
    assert "execution_ended" in rows.explain()
