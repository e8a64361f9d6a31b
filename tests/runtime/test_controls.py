"""Pausing, and clearing a line: what starts no more, what goes on, and who is told."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connections
from rest_framework.test import APIClient

from backlog import bulk
from backlog.models import Execution, Status
from capacity import slots
from capacity.manager import CapacityManager
from core.events import CHANNEL
from fleet.models import Agent, AuditEntry, FleetSettings, Session, Share
from runtime import housekeeping
from runtime.runtimes.base import Result
from runtime.services import controls, lines, runs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

Api = Callable[[User | str | None], APIClient]
Post = Callable[..., Any]


@pytest.fixture
def do(api: Api, owner: User) -> Callable[..., Any]:
    """Posts to a control: `do("agents/x/pause/", by=…, **body)`."""

    def post(path: str, *, by: User | str = owner, **body: Any) -> Any:
        return api(by).post(f"/api/{path}", body, format="json")

    return post


@pytest.fixture
def single(make_agent: Callable[..., Agent]) -> Agent:
    """An agent with one slot."""
    return make_agent(limit=1)


def statuses(agent: Agent) -> list[str]:
    """Of the agent's rows, in the order they were made."""
    return list(Execution.objects.filter(agent=agent).order_by("queued_at", "id").values_list("status", flat=True))


def begin(execution_id: str) -> runs.Begun:
    """Start the granted row as a worker would."""
    granted = Execution.objects.get(pk=execution_id)
    assert granted.slot_token is not None
    begun = runs.begin_run(execution_id=granted.pk, token=granted.slot_token)
    assert begun is not None
    return begun


def heard(listener: redis.client.PubSub) -> str:
    """All that was announced since the listener began."""
    told = []
    while (message := listener.get_message(timeout=0.5)) is not None:
        told.append(str(message["data"]))
    return " ".join(told)


# -- Pause -------------------------------------------------------------------------------------------------------------
def test_a_paused_agent_starts_nothing_new_and_its_line_fills(do: Any, post_task: Post, single: Agent) -> None:
    running = begin(post_task("runs", to=single).json()["execution_id"])
    post_task("waits", to=single)
    for _ in range(2):
        answer = do(f"agents/{single.name}/pause/")
        assert (answer.status_code, answer.json()) == (200, {"agent_name": single.name, "paused": True, "fleet_paused": False})
    assert post_task("waits too", to=single).json()["queue_position"] == 2
    # The thread that ends the run takes none in its place, and neither does any drain.
    assert runs.end_run(running, Result(response="done"), in_place=True) is None
    housekeeping.run_once()
    assert CapacityManager().drain(single.pk) == ()
    assert statuses(single) == [Status.SUCCESS, Status.QUEUED, Status.QUEUED]
    assert slots.state(single.name).holders == []
    assert do(f"agents/{single.name}/resume/").json() == {"agent_name": single.name, "paused": False, "fleet_paused": False}
    assert statuses(single) == [Status.SUCCESS, Status.RUNNING, Status.QUEUED]
    assert [(entry.action, entry.before, entry.after) for entry in AuditEntry.objects.order_by("id")] == [
        ("paused", False, True),
        ("paused", True, False),
    ]


def test_a_paused_fleet_starts_nothing_new_of_any_agent(
    do: Any, api: Api, owner: User, superuser: User, post_task: Post, make_agent: Callable[..., Agent]
) -> None:
    one, other = make_agent(limit=2), make_agent(limit=1)
    assert do("fleet/pause/", by=superuser).json() == do("fleet/pause/", by=superuser).json() == {"paused": True}
    for agent in (one, other):
        assert post_task(to=agent).json()["status"] == "queued"
        answer = post_task(to=agent, on_full="reject")
        assert (answer.status_code, answer.json()["code"]) == (503, "agent_paused")
        assert answer.json()["detail"] == f"Agent '{agent.name}' is paused"
        assert int(answer["Retry-After"]) >= 1
    assert post_task(to=one, async_mode=None).status_code == 503
    # An agent that goes on by itself still stands still with the fleet.
    assert do(f"agents/{one.name}/resume/").json()["fleet_paused"] is True
    assert statuses(one) == statuses(other) == [Status.QUEUED]
    assert api(owner).get("/api/agents/slots").json()["agents"][one.name]["paused"] is True
    do(f"agents/{other.name}/pause/")
    assert do("fleet/resume/", by=superuser).json() == {"paused": False}
    assert (statuses(one), statuses(other)) == ([Status.RUNNING], [Status.QUEUED])
    assert AuditEntry.objects.filter(agent=None, action="fleet_paused").count() == 2


@pytest.mark.parametrize("whom", ["agents/{name}", "fleet"])
def test_what_was_granted_before_a_pause_and_has_not_begun_begins_after_it(
    do: Any, post_task: Post, single: Agent, owner: User, whom: str
) -> None:
    User.objects.filter(pk=owner.pk).update(is_superuser=True)
    owner.refresh_from_db()
    where = whom.format(name=single.name)
    first, second = (post_task("m", to=single).json()["execution_id"] for _ in range(2))
    granted = Execution.objects.get(pk=first)
    assert granted.slot_token is not None
    assert do(f"{where}/pause/").status_code == 200
    assert runs.begin_run(execution_id=granted.pk, token=granted.slot_token) is None
    assert statuses(single) == ["queued", "queued"]
    assert slots.state(single.name).holders == []

    assert do(f"{where}/resume/").status_code == 200
    assert [str(row.pk) for row in Execution.objects.filter(status=Status.RUNNING)] == [first]
    assert begin(first).row.message == "m"
    assert Execution.objects.get(pk=second).status == Status.QUEUED


def test_a_pause_is_told_wherever_load_is_read(do: Any, api: Api, owner: User, post_task: Post, single: Agent, valkey: redis.Redis) -> None:
    post_task(to=single)
    waiting = post_task(to=single).json()["execution_id"]
    before = slots.state(single.name).version
    with valkey.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(CHANNEL)
        listener.get_message(timeout=1)
        do(f"agents/{single.name}/pause/")
        assert "pause.changed" in heard(listener)
    assert slots.state(single.name).version > before
    capacity = api(owner).get(f"/api/agents/{single.name}/capacity").json()
    assert (capacity["paused"], capacity["limited_by"]) == (True, "paused")
    assert api(owner).get("/api/agents/slots").json()["agents"][single.name]["paused"] is True
    assert api(owner).get(f"/api/executions/{waiting}/").json()["waiting_for"] == "paused"
    queue = api(owner).get(f"/api/agents/{single.name}/queue/").json()
    assert (queue["paused"], queue["results"][0]["waiting_for"]) == (True, "paused")
    assert api(owner).get(f"/api/agents/{single.name}/").json()["paused"] is True


def test_a_pause_holds_while_the_slot_store_is_away(do: Any, post_task: Post, single: Agent, store_out_of_reach: Any) -> None:
    post_task(to=single)
    store_out_of_reach(True)
    assert do(f"agents/{single.name}/pause/").status_code == 200
    store_out_of_reach(False)
    assert post_task(to=single, on_full="reject").json()["code"] == "agent_paused"


def test_no_admission_that_begins_after_a_pause_starts(do: Any, post_task: Post, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=8, depth=500)
    posted: list[str] = []

    def post_many() -> None:
        try:
            posted.extend(post_task(to=agent).json()["status"] for _ in range(12))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=post_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    do(f"agents/{agent.name}/pause/")
    after = [post_task("after", to=agent).json()["status"] for _ in range(5)]
    for thread in threads:
        thread.join(60)
    assert after == ["queued"] * 5
    assert len(posted) == 48
    housekeeping.run_once()
    assert not Execution.objects.filter(agent=agent, message="after").exclude(status=Status.QUEUED).exists()


def test_owners_pause_agents_and_superusers_the_fleet(
    do: Any, owner: User, stranger: User, superuser: User, make_key: Callable[..., str], agent: Agent
) -> None:
    Share.objects.create(agent=agent, user=stranger)
    for act in ("pause", "resume"):
        answer = do(f"agents/{agent.name}/{act}/", by=stranger)
        assert (answer.status_code, answer.json()["code"]) == (403, "owner_required")
        assert answer.json()["detail"] == "Only the agent's owner can do this"
        assert do(f"agents/{agent.name}/{act}/", by=make_key("agent", agent=agent)).json()["code"] == "person_required"
        assert do("agents/nobody/pause/").json()["code"] == "agent_not_found"
        assert do(f"fleet/{act}/", by=owner).json()["code"] == "access_denied"
        assert do(f"fleet/{act}/", by=make_key("system", owner=superuser)).json()["code"] == "person_required"
        assert do(f"agents/{agent.name}/{act}/", by=superuser).status_code == 200
        assert do(f"agents/{agent.name}/{act}/", force=True).json()["code"] == "unknown_field"
    assert FleetSettings.objects.get().paused is False


# -- Limits and the line -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path", ["agents/{name}/pause/", "agents/{name}/resume/", "agents/{name}/queue/clear/", "fleet/pause/", "fleet/resume/"]
)
def test_who_may_not_is_told_so_whatever_they_sent(
    do: Any, stranger: User, superuser: User, make_key: Callable[..., str], agent: Agent, path: str
) -> None:
    here, nowhere = path.format(name=agent.name), path.format(name="nobody")
    for key in (make_key("agent", agent=agent), make_key("system", owner=superuser)):
        assert do(here, by=key, all=True).json()["code"] == do(nowhere, by=key, all=True).json()["code"] == "person_required"
    assert do(here, by=stranger, all=True).json()["code"] == "access_denied"
    assert do(nowhere, by=superuser, all=True).json()["code"] == ("unknown_field" if nowhere == here else "agent_not_found")
    assert do(here, by=superuser, all=True).json()["code"] == "unknown_field"


def test_a_cut_kills_nothing_and_admits_nothing_until_it_is_below_the_new_limit(
    do: Any, api: Api, owner: User, post_task: Post, make_agent: Callable[..., Agent]
) -> None:
    agent = make_agent(limit=5)
    running = [begin(post_task("runs", to=agent).json()["execution_id"]) for _ in range(5)]
    for _ in range(2):
        post_task("waits", to=agent)
    assert api(owner).put(f"/api/agents/{agent.name}/capacity", {"max_parallel_tasks": 1}, format="json").status_code == 200
    for number, one in enumerate(running[:4], start=1):
        assert runs.end_run(one, Result(response="done"), in_place=True) is None
        housekeeping.sweep()
        assert len(slots.state(agent.name).holders) == 5 - number
        assert statuses(agent)[5:] == [Status.QUEUED] * 2
    following = runs.end_run(running[4], Result(response="done"), in_place=True)
    assert following is not None
    assert statuses(agent) == [*[Status.SUCCESS] * 5, Status.RUNNING, Status.QUEUED]


def test_what_was_queued_25_hours_ago_has_expired_and_the_rest_waits_on(
    post_task: Post, single: Agent, age_row: Callable[[Execution, float], Execution]
) -> None:
    post_task("runs", to=single)
    old, young = (Execution.objects.get(pk=post_task(text, to=single).json()["execution_id"]) for text in ("old", "young"))
    age_row(old, 25 * 3600)
    age_row(young, 23 * 3600)
    housekeeping.sweep()
    old.refresh_from_db()
    assert (old.status, old.error_code, old.started_at) == (Status.FAILED, "expired", None)
    assert statuses(single).count(Status.QUEUED) == 1


# -- Clear -------------------------------------------------------------------------------------------------------------
def test_a_cleared_line_is_cancelled_and_what_runs_goes_on(
    do: Any, api: Api, owner: User, post_task: Post, single: Agent, valkey: redis.Redis
) -> None:
    begin(post_task("runs", to=single).json()["execution_id"])
    waiting = [post_task("waits", to=single).json()["execution_id"] for _ in range(3)]
    with valkey.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(CHANNEL)
        listener.get_message(timeout=1)
        answer = do(f"agents/{single.name}/queue/clear/")
        told = heard(listener)
    assert (answer.status_code, answer.json()) == (200, {"cleared": 3})
    # Whoever waits for one of them hears of it at once.
    assert all(f'"execution.finished", "execution_id": "{one}"' in told for one in waiting)
    assert statuses(single) == [Status.RUNNING, *[Status.CANCELLED] * 3]
    assert api(owner).get(f"/api/executions/{waiting[0]}/").json()["error_code"] == "cancelled"
    assert do(f"agents/{single.name}/queue/clear/").json() == {"cleared": 0}
    assert [(entry.action, entry.before) for entry in AuditEntry.objects.all()] == [("queue_cleared", 3)]


def test_a_line_is_cleared_in_batches_from_its_end(
    do: Any, post_task: Post, single: Agent, monkeypatch: pytest.MonkeyPatch, make_agent: Callable[..., Agent]
) -> None:
    monkeypatch.setattr(lines, "BATCH", 2)
    post_task(to=single)
    waiting = [post_task(to=single).json()["execution_id"] for _ in range(5)]
    elsewhere = make_agent(limit=1)
    post_task(to=elsewhere)
    post_task(to=elsewhere)
    assert do(f"agents/{single.name}/queue/clear").json() == {"cleared": 5}
    ended = Execution.objects.filter(pk__in=waiting).order_by("completed_at", "-queued_at").values_list("pk", flat=True)
    assert [str(pk) for pk in ended] == waiting[::-1]
    assert statuses(elsewhere) == [Status.RUNNING, Status.QUEUED]


def test_only_what_is_still_in_line_is_cancelled(post_task: Post, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1)
    running, waiting = (Execution.objects.get(pk=post_task(to=agent).json()["execution_id"]) for _ in range(2))
    assert bulk.cancel_batch(agent_id=agent.pk, execution_ids=[running.pk, waiting.pk]) == [waiting.pk]
    assert bulk.cancel_batch(agent_id=agent.pk, execution_ids=[waiting.pk]) == []
    assert statuses(agent) == [Status.RUNNING, Status.CANCELLED]


def test_a_session_whose_line_was_cleared_goes_on_with_what_comes_next(
    do: Any, post_task: Post, make_agent: Callable[..., Agent], owner: User
) -> None:
    agent = make_agent(limit=3)
    session = str(Session.objects.create(agent=agent, owner=owner).pk)
    running = begin(post_task("first", to=agent, session_id=session).json()["execution_id"])
    post_task("second", to=agent, session_id=session)
    assert do(f"agents/{agent.name}/queue/clear/").json() == {"cleared": 1}
    third = Execution.objects.get(pk=post_task("third", to=agent, session_id=session).json()["execution_id"])
    assert (third.status, third.startable) == (Status.QUEUED, False)
    runs.end_run(running, Result(response="done"), in_place=False)
    third.refresh_from_db()
    assert third.status == Status.RUNNING


def test_a_batch_makes_the_next_of_a_session_startable(post_task: Post, single: Agent, owner: User) -> None:
    session = str(Session.objects.create(agent=single, owner=owner).pk)
    post_task("holds the slot", to=single)
    first, second = (Execution.objects.get(pk=post_task(to=single, session_id=session).json()["execution_id"]) for _ in range(2))
    assert (first.startable, second.startable) == (True, False)
    bulk.cancel_batch(agent_id=single.pk, execution_ids=[first.pk])
    second.refresh_from_db()
    assert second.startable is True


def test_clearing_is_the_owners(do: Any, stranger: User, make_key: Callable[..., str], agent: Agent) -> None:
    assert do(f"agents/{agent.name}/queue/clear/", by=stranger).json()["code"] == "access_denied"
    assert do(f"agents/{agent.name}/queue/clear/", by=make_key("agent", agent=agent)).json()["code"] == "person_required"
    Share.objects.create(agent=agent, user=stranger)
    assert do(f"agents/{agent.name}/queue/clear/", by=stranger).json()["code"] == "owner_required"


def test_a_cancel_of_what_runs_stays_its_own(post_task: Post, single: Agent) -> None:
    running = begin(post_task(to=single).json()["execution_id"])
    assert controls.cancel_as_seen(Execution.objects.get(pk=running.row.pk)) == "cancelling"
    runs.end_run(running, Result(response="done"), in_place=True)
    ended = Execution.objects.get(pk=running.row.pk)
    assert (ended.status, ended.error_code) == (Status.CANCELLED, "cancelled")
