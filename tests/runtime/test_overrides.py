"""Limits set for a time: set, changed, ended, and returned from by themselves."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connections
from django.db.models import F
from rest_framework.test import APIClient

from backlog.models import Execution, Status
from capacity import slots
from capacity.manager import CapacityManager
from core.events import CHANNEL
from fleet import lifecycle
from fleet.models import Agent, AuditEntry, FleetSettings
from runtime import housekeeping
from runtime.services import controls

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

Api = Callable[[User | str | None], APIClient]
Post = Callable[..., Any]
Put = Callable[..., Any]
LATER = datetime(2100, 1, 1, tzinfo=UTC)
LONG = "override_until must be a time in the future, at most 366 days from now"


@pytest.fixture
def put(api: Api, owner: User) -> Put:
    """Sets an agent's capacity: `put(agent, 5, until=…, **body)`; `until` as seconds from now, or as it is to be sent."""

    def write(agent: Agent, limit: int, *, until: Any = None, headers: dict[str, str] | None = None, **body: Any) -> Any:
        if until is not None:
            body["override_until"] = moment(until) if isinstance(until, (int, float)) else until
        url = f"/api/agents/{agent.name}/capacity"
        return api(owner).put(url, {"max_parallel_tasks": limit, **body}, format="json", headers=headers)

    return write


@pytest.fixture
def shown(api: Api, owner: User) -> Callable[[Agent], tuple[Any, ...]]:
    """The agent's limit, the one to go back to, until when, and what sets it; the slot store is open."""
    CapacityManager().rebuild()

    def read(agent: Agent) -> tuple[Any, ...]:
        body = api(owner).get(f"/api/agents/{agent.name}/capacity").json()
        return tuple(body[name] for name in ("max_parallel_tasks", "base_max_parallel_tasks", "override_until", "limited_by"))

    return read


def moment(seconds: float) -> str:
    """So many seconds from now, as a caller writes it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def let_pass(agent: Agent) -> None:
    """As if the override's time were over."""
    Agent.objects.filter(pk=agent.pk).update(override_until=F("override_until") - timedelta(days=400))


def told(agent: Agent) -> list[tuple[Any, ...]]:
    """What the audit tells of the agent, in order."""
    return list(AuditEntry.objects.filter(agent=agent).order_by("id").values_list("actor_name", "action", "before", "after"))


# -- Set and changed -----------------------------------------------------------------------------------------------------
def test_a_limit_holds_for_a_time_and_the_former_one_returns_by_itself(put: Put, shown: Any, make_agent: Any, post_task: Post) -> None:
    agent, until = make_agent(limit=2), moment(3600)
    answer = put(agent, 5, until=until, max_backlog_depth=7)
    assert (answer.status_code, answer.json()) == (200, {
        "message": "Capacity updated", "agent_name": agent.name, "max_parallel_tasks": 5, "max_backlog_depth": 7, "override_until": until,
    })  # fmt: skip
    assert shown(agent) == (5, 2, until, "override")
    for _ in range(6):
        post_task(to=agent)
    housekeeping.sweep()
    assert shown(agent) == (5, 2, until, "override"), "its time is not over"
    let_pass(agent)
    passed = shown(agent)[2]
    housekeeping.sweep()
    assert shown(agent) == (2, None, None, "owner")
    assert Execution.objects.filter(agent=agent, status=Status.RUNNING).count() == 5, "a cut stops nothing"
    agent.refresh_from_db()
    assert (agent.settings_version, agent.changed_by, agent.max_backlog_depth) == (3, None, 7)
    assert agent.changed_at is not None
    assert told(agent) == [
        ("olga", "max_parallel_tasks", 2, 5), ("olga", "max_backlog_depth", 50, 7), ("olga", "override_until", None, until),
        ("system", "max_parallel_tasks", 5, 2), ("system", "override_until", passed, None),
    ]  # fmt: skip
    assert AuditEntry.objects.filter(actor=None).count() == 2
    housekeeping.sweep()
    assert len(told(agent)) == 5


def test_a_raise_at_its_end_starts_what_waits_and_is_told(put: Put, make_agent: Any, post_task: Post, valkey: redis.Redis) -> None:
    agent = make_agent(limit=3)
    put(agent, 1, until=60)
    for _ in range(4):
        post_task(to=agent)
    assert Execution.objects.filter(agent=agent, status=Status.RUNNING).count() == 1
    version = slots.state(agent.name).version
    let_pass(agent)
    with valkey.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(CHANNEL)
        listener.get_message(timeout=1)
        controls.end_overrides()
        heard = ""
        while (message := listener.get_message(timeout=0.5)) is not None:
            heard += str(message["data"])
    assert "limit.changed" in heard
    assert Execution.objects.filter(agent=agent, status=Status.RUNNING).count() == 3
    assert slots.state(agent.name).version > version


def test_over_an_override_the_limit_to_go_back_to_stays(put: Put, shown: Any, make_agent: Any) -> None:
    agent, first, second = make_agent(limit=4), moment(600), moment(1200)
    put(agent, 6, until=first)
    put(agent, 8, until=second)
    assert shown(agent) == (8, 4, second, "override")
    put(agent, 4, until=second)
    assert shown(agent) == (4, 4, second, "override"), "as low as the former one, and yet for a time"
    put(agent, 4, until=first)
    assert shown(agent) == (4, 4, first, "override")
    assert told(agent)[2:] == [
        ("olga", "max_parallel_tasks", 6, 8), ("olga", "override_until", first, second),
        ("olga", "max_parallel_tasks", 8, 4), ("olga", "override_until", second, first),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["put", "put of null", "patch", "the same limit"])
def test_a_limit_without_it_ends_an_override_and_lasts(put: Put, shown: Any, make_agent: Any, api: Api, owner: User, end: str) -> None:
    agent, until = make_agent(limit=2), moment(600)
    put(agent, 6, until=until)
    if end == "patch":
        assert api(owner).patch(f"/api/agents/{agent.name}/", {"description": "busy"}, format="json").status_code == 200
        assert shown(agent) == (6, 2, until, "override"), "what is left out stays"
        assert api(owner).patch(f"/api/agents/{agent.name}/", {"max_parallel_tasks": 5}, format="json").status_code == 200
    elif end == "put of null":
        answer = api(owner).put(f"/api/agents/{agent.name}/capacity", {"max_parallel_tasks": 5, "override_until": None}, format="json")
        assert answer.json()["override_until"] is None
    else:
        put(agent, 6 if end == "the same limit" else 5)
    lasting = 6 if end == "the same limit" else 5
    assert shown(agent) == (lasting, None, None, "owner")
    assert told(agent)[-1] == ("olga", "override_until", until, None)
    Agent.objects.filter(pk=agent.pk).update(created_at=F("created_at") - timedelta(days=400))
    housekeeping.sweep()
    assert shown(agent)[0] == lasting


def test_what_was_sent_again_changes_nothing(put: Put, make_agent: Any) -> None:
    agent, until = make_agent(limit=2), moment(600)
    tags = {put(agent, 6, until=until)["ETag"] for _ in range(2)}
    assert tags == {'"2"'}
    assert len(told(agent)) == 2


def test_a_time_that_is_none_is_refused(put: Put, agent: Agent) -> None:
    for until in (0, -1, -86_400, 366 * 86_400 + 60, "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"):
        answer = put(agent, 5, until=until)
        assert (answer.status_code, answer.json()["detail"]) == (400, LONG), until
        assert answer.json()["errors"][0]["pointer"] == "/override_until"
    for until in ("tomorrow", "2030-01-01", "2030-01-01T00:00:00", [], {}, "2030-13-01T00:00:00Z", "0001-01-01T00:00:00+23:59"):
        answer = put(agent, 5, override_until=until)
        assert (answer.status_code, answer.json()["detail"]) == (400, "override_until must be a time such as 2030-01-31T12:00:00Z"), until
    assert put(agent, 99, until=60).json()["detail"] == "max_parallel_tasks must be an integer between 1 and 10"
    assert put(agent, 5, until=366 * 86_400 - 60).status_code == 200
    agent.refresh_from_db()
    assert agent.settings_version == 2


def test_only_a_limit_is_overridden(api: Api, owner: User, agent: Agent) -> None:
    answer = api(owner).put(f"/api/agents/{agent.name}/capacity", {"override_until": moment(60)}, format="json")
    assert (answer.status_code, answer.json()["detail"]) == (400, "max_parallel_tasks is required")
    answer = api(owner).patch(f"/api/agents/{agent.name}/", {"override_until": moment(60)}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_field")


# -- Its end, whatever happens -------------------------------------------------------------------------------------------
def test_it_ends_though_the_store_was_emptied_and_every_process_is_a_new_one(
    put: Put, shown: Any, make_agent: Any, post_task: Post, valkey: redis.Redis
) -> None:
    agent = make_agent(limit=1)
    put(agent, 3, until=60)
    for _ in range(4):
        post_task(to=agent)
    let_pass(agent)
    valkey.flushdb()
    housekeeping.sweep()
    assert shown(agent)[:3] == (1, None, None)
    # What had not begun went back in line, and came out again by the limit that is back.
    assert Execution.objects.filter(agent=agent, status=Status.RUNNING).count() == 1


def test_it_ends_while_the_store_is_away_and_the_line_moves_when_it_is_back(
    put: Put, make_agent: Any, post_task: Post, store_out_of_reach: Any
) -> None:
    agent = make_agent(limit=3)
    put(agent, 1, until=60)
    for _ in range(4):
        post_task(to=agent)
    let_pass(agent)
    store_out_of_reach(True)
    controls.end_overrides()
    agent.refresh_from_db()
    assert agent.max_parallel_tasks == 3
    store_out_of_reach(False)
    housekeeping.sweep()
    assert Execution.objects.filter(agent=agent, status=Status.RUNNING).count() == 3


def test_two_that_end_it_at_once_end_it_once(put: Put, make_agent: Any) -> None:
    agents = [make_agent(limit=2) for _ in range(3)]
    for agent in agents:
        put(agent, 5, until=60)
        let_pass(agent)
    barrier, ended = threading.Barrier(4), []

    def run() -> None:
        barrier.wait()
        try:
            ended.extend(row.pk for row in lifecycle.end_overrides())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(ended) == sorted(agent.pk for agent in agents)
    assert AuditEntry.objects.filter(actor_name="system").count() == 6


def test_one_that_was_prolonged_or_ended_meanwhile_is_left_alone(put: Put, shown: Any, make_agent: Any) -> None:
    prolonged, lasting, deleted = make_agent(limit=2), make_agent(limit=2), make_agent(limit=2)
    for agent in (prolonged, lasting, deleted):
        put(agent, 5, until=60)
        let_pass(agent)
    Agent.objects.filter(pk=deleted.pk).update(deleted_at=deleted.created_at)
    assert put(prolonged, 5, until=600).status_code == 200
    assert put(lasting, 7).status_code == 200
    housekeeping.sweep()
    assert shown(prolonged)[:2] == (5, 2)
    assert shown(lasting)[:3] == (7, None, None)


# -- What sets the limit now -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("limit", "columns", "fleet", "reason"),
    [
        (3, {}, {}, "default"),
        (4, {}, {}, "owner"),
        (2, {}, {}, "owner"),
        (3, {"base_max_parallel_tasks": 5, "override_until": LATER}, {}, "override"),
        (5, {}, {"max_parallel_tasks_ceiling": 5}, "owner"),
        (5, {}, {"max_parallel_tasks_ceiling": 4}, "ceiling"),
        (3, {}, {"max_parallel_tasks_ceiling": 2}, "ceiling"),
        (5, {"base_max_parallel_tasks": 3, "override_until": LATER}, {"max_parallel_tasks_ceiling": 4}, "ceiling"),
        (3, {}, {"max_concurrent_tasks": 2}, "default"),
        (3, {}, {"max_concurrent_tasks": 1}, "fleet"),
        (5, {}, {"max_concurrent_tasks": 1, "max_parallel_tasks_ceiling": 4}, "fleet"),
        (3, {}, {"max_concurrent_tasks": 1, "paused": True}, "paused"),
        (3, {"paused": True}, {"max_concurrent_tasks": 1}, "paused"),
    ],
)  # fmt: skip
def test_the_first_that_sets_the_limit_is_named(
    shown: Any, make_agent: Any, post_task: Post, limit: int, columns: dict[str, Any], fleet: dict[str, Any], reason: str
) -> None:
    post_task(to=make_agent())  # the fleet's one run
    agent = make_agent(limit=limit, **columns)
    FleetSettings.objects.update(**fleet)
    assert shown(agent)[3] == reason


def test_another_setting_makes_the_default_limit_no_ones(put: Put, shown: Any, agent: Agent) -> None:
    put(agent, 3, max_backlog_depth=7)
    assert shown(agent)[3] == "default"
