"""Cancelling all that match."""

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from backlog import bulk
from backlog.models import Execution, Status
from fleet.models import Session, Share
from tests.runtime.histories import begin

FILTERS = "status, triggered_by, session_id, agent, since, until, error_code, text, mine, ids"


@pytest.fixture
def cancel(api: Any, owner: Any) -> Callable[..., Any]:
    """Cancels what matches: `cancel(by=…, status=["queued"], …)`."""

    def post(*, by: Any = owner, **filters: Any) -> Any:
        return api(by).post("/api/executions/cancel/", filters, format="json")

    return post


def statuses() -> dict[str, int]:
    """How many executions have each status."""
    return dict(Counter(Execution.objects.values_list("status", flat=True)))


def test_all_that_match_are_cancelled_and_their_slots_go_to_the_rest(post_task, cancel, make_agent):
    single, other = make_agent(limit=1, depth=9), make_agent(limit=1)
    for _ in range(4):
        post_task(to=single)
    stays = post_task(to=other).json()["execution_id"]
    answer = cancel(agent=single.name)
    assert (answer.status_code, answer.json()) == (200, {"cancelled": 4, "cancelling": 0})
    assert statuses() == {"cancelled": 4, "running": 1}
    assert Execution.objects.get(status="running").pk == uuid.UUID(stays)
    assert post_task(to=single).json()["status"] == "accepted"


def test_what_runs_is_being_stopped_and_counts_as_such(post_task, cancel, make_agent):
    agent = make_agent(limit=2)
    runs = begin(post_task(to=agent), seconds_ago=1)
    for _ in range(3):
        post_task(to=agent)
    assert cancel(agent=agent.name).json() == {"cancelled": 3, "cancelling": 1}
    runs.refresh_from_db()
    assert (runs.status, runs.cancel_requested_at is not None) == ("running", True)
    assert cancel(agent=agent.name).json() == {"cancelled": 0, "cancelling": 1}


def test_only_what_waits_is_touched_where_only_that_was_named(post_task, cancel, make_agent):
    single = make_agent(limit=1)
    ids = [post_task(to=single).json()["execution_id"] for _ in range(3)]
    assert cancel(status=["queued"]).json() == {"cancelled": 2, "cancelling": 0}
    assert Execution.objects.get(pk=ids[0]).status == "running"
    post_task(to=single)
    assert cancel(status=["running"]).json() == {"cancelled": 1, "cancelling": 0}
    assert statuses() == {"cancelled": 3, "running": 1}
    assert cancel(status=["success", "failed"]).json() == {"cancelled": 0, "cancelling": 0}


def test_each_filter_narrows(post_task, cancel, make_agent, owner):
    agent = make_agent(limit=1, depth=9)
    session = Session.objects.create(agent=agent, owner=owner)
    post_task(to=agent)
    ids = [post_task(to=agent).json()["execution_id"] for _ in range(3)]
    in_session = post_task(to=agent, session_id=str(session.pk)).json()["execution_id"]

    def gone() -> list[str]:
        return [str(pk) for pk in Execution.objects.filter(status="cancelled").order_by("queued_at", "id").values_list("pk", flat=True)]

    assert cancel(session_id=str(uuid.uuid4())).json()["cancelled"] == 0
    assert cancel(triggered_by="schedule").json()["cancelled"] == 0
    assert cancel(until="2001-01-01T00:00:00Z").json()["cancelled"] == 0
    assert cancel(since="2101-01-01T00:00:00Z").json()["cancelled"] == 0
    assert cancel(agent="nobody").json()["cancelled"] == 0
    assert cancel(ids=[str(uuid.uuid4())]).json()["cancelled"] == 0
    assert gone() == []
    assert cancel(session_id=str(session.pk)).json()["cancelled"] == 1
    assert gone() == [in_session]
    assert cancel(ids=ids[1:], status=["queued", "running"], triggered_by="manual").json()["cancelled"] == 2
    assert sorted(gone()) == sorted([*ids[1:], in_session])


def test_nobody_cancels_what_they_may_not(post_task, cancel, agent, make_agent, stranger, superuser, make_key):
    Share.objects.create(agent=agent, user=stranger)
    own_key = make_key("agent", agent=agent)
    post_task()
    theirs, keys = post_task(by=stranger), post_task(by=own_key)
    foreign = make_agent(owner=superuser)
    post_task(to=foreign, by=superuser)
    assert cancel(by=own_key, status=["running", "queued"]).json()["cancelled"] == 1
    assert Execution.objects.get(status="cancelled").pk == uuid.UUID(keys.json()["execution_id"])
    assert cancel(by=stranger, status=["running", "queued"]).json()["cancelled"] == 1
    assert Execution.objects.get(pk=theirs.json()["execution_id"]).status == "cancelled"
    assert cancel(by=make_key("system", owner=superuser), status=["running"]).json()["cancelled"] == 0
    assert cancel(agent=foreign.name).json()["cancelled"] == 0
    assert cancel(status=["running"]).json()["cancelled"] == 1
    assert cancel(by=superuser, status=["running"]).json()["cancelled"] == 1
    assert statuses() == {"cancelled": 4}


def test_whoever_lost_access_cancels_nothing_there(post_task, cancel, agent, stranger):
    share = Share.objects.create(agent=agent, user=stranger)
    post_task(by=stranger)
    share.delete()
    assert cancel(by=stranger, status=["running"]).json()["cancelled"] == 0


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, f"At least one of {FILTERS} is required"),
        ({"status": []}, "status must be a list of 1 to 5 entries"),
        ({"status": "queued"}, "status must be a list of 1 to 5 entries"),
        ({"status": ["gone"]}, "every entry of status must be one of queued, running, success, failed, cancelled"),
        ({"triggered_by": "me"}, "triggered_by must be one of manual, agent, mcp, schedule, public, chat, approval, retry"),
        ({"session_id": "x"}, "session_id must be a UUID"),
        ({"since": "2030-01-01"}, "since must be a time such as 2030-01-31T12:00:00Z"),
        ({"ids": []}, "ids must be a list of 1 to 200 entries"),
        ({"ids": ["x"]}, "every entry of ids must be a UUID"),
        ({"agent": "a\0b"}, "Text must not contain NUL characters"),
        ({"limit": 5}, f"Unknown field 'limit'; the valid fields are {FILTERS}, dry_run"),
    ],
)
def test_a_wrong_body_cancels_nothing_and_is_named(post_task, cancel, agent, body, detail):
    post_task()
    answer = cancel(**body)
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)
    assert statuses() == {"running": 1}


def test_what_starts_while_a_line_is_gone_through_is_cancelled_as_well(post_task, cancel, make_agent, monkeypatch):
    single = make_agent(limit=1)
    holds, first, _ = (post_task(to=single).json()["execution_id"] for _ in range(3))
    cancel_batch = bulk.cancel_batch

    def while_the_run_ends(**batch: Any) -> list[uuid.UUID]:
        """As if the run had ended just before: the next in line has its slot now."""
        token = Execution.objects.get(pk=holds).slot_token
        Execution.objects.filter(pk=holds).update(status=Status.SUCCESS, slot_token=None, completed_at="2030-01-01T00:00:00Z")
        Execution.objects.filter(pk=first).update(status=Status.RUNNING, slot_token=token, slot_number=1, started_at="2030-01-01T00:00:00Z")
        return cancel_batch(**batch)

    monkeypatch.setattr(bulk, "cancel_batch", while_the_run_ends)
    assert cancel(agent=single.name).json() == {"cancelled": 1, "cancelling": 1}
    assert Execution.objects.get(pk=first).cancel_requested_at is not None


def test_a_long_line_is_cancelled_whole(post_task, cancel, make_agent):
    single = make_agent(limit=1, depth=1000)
    post_task(to=single)
    Execution.objects.bulk_create(
        Execution(agent=single, agent_name=single.name, status=Status.QUEUED, message="m", timeout_seconds=60) for _ in range(450)
    )
    assert cancel(status=["queued"]).json() == {"cancelled": 450, "cancelling": 0}
    assert statuses() == {"cancelled": 450, "running": 1}


def test_a_dry_run_tells_how_many_wait_and_how_many_run_and_all_go_on(post_task, cancel, make_agent):
    agent = make_agent(limit=2)
    begin(post_task(to=agent), seconds_ago=1)
    for _ in range(3):
        post_task(to=agent)
    assert cancel(agent=agent.name, dry_run=True).json() == {"cancelled": 2, "cancelling": 2}
    assert statuses() == {"queued": 2, "running": 2}
    assert cancel(dry_run=True).status_code == 400


def test_text_and_whose_it_is_narrow_it_too(post_task, cancel, owner, stranger, make_agent):
    agent = make_agent(limit=1)
    Share.objects.create(agent=agent, user=stranger)
    post_task("one", to=agent)
    post_task("Two", to=agent)
    post_task("two", to=agent, by=stranger)
    assert cancel(text="two", mine=True).json() == {"cancelled": 1, "cancelling": 0}
    assert cancel(error_code="timeout").json() == {"cancelled": 0, "cancelling": 0}
