"""The fleet's cap: who sets it, what happens at it, and whose turn it is for a free place."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connections
from rest_framework.test import APIClient

from backlog import services as backlog
from backlog.models import Execution, Status
from backlog.services import Outcome
from capacity import slots, turns
from capacity.leases import Lease
from capacity.manager import CapacityManager
from fleet.models import Agent, AuditEntry, FleetSettings
from runtime import dispatch, housekeeping
from runtime.services import agents

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

URL = "/api/settings/max-concurrent-tasks"
Api = Callable[[User | str | None], APIClient]
Post = Callable[..., Any]
manager = CapacityManager()


@pytest.fixture
def set_cap(api: Api, superuser: User) -> Callable[..., Any]:
    """Sets the cap: `set_cap(4, on_full="reject", headers={…})`."""

    def put(value: Any, *, headers: dict[str, str] | None = None, **body: Any) -> Any:
        return api(superuser).put(URL, {"value": value, **body}, format="json", headers=headers)

    return put


def running(agent: Agent) -> list[Execution]:
    """The agent's rows that hold a slot, the first granted first."""
    return list(Execution.objects.filter(agent=agent, status=Status.RUNNING).order_by("granted_at", "id"))


def end(row: Execution) -> list[str]:
    """Let the row's run end as its worker would; the names of the agents that got what it left."""
    assert row.slot_token is not None
    lease = lease_of(row)
    backlog.start(execution_id=row.pk, token=row.slot_token)
    written, claimed = backlog.finish_and_claim_next(
        agent_id=row.agent_id, execution_id=row.pk, token=row.slot_token, outcome=Outcome(response="done"), next_token=row.pk
    )
    assert written
    assert claimed is None, "under a cap a freed place is the fleet's"
    admissions = manager.release(agent_id=row.agent_id, lease=lease)
    dispatch.start(admissions)
    return [admission.lease.agent for admission in admissions]


def lease_of(row: Execution) -> Lease:
    """The lease of a row that holds a slot."""
    assert row.slot_token is not None
    return Lease(agent=row.agent_name, execution_id=row.pk, token=row.slot_token, timeout_seconds=row.timeout_seconds)


def end_without_drain(row: Execution) -> None:
    """Let the row's run end, and nobody look at what it left."""
    assert row.slot_token is not None
    backlog.start(execution_id=row.pk, token=row.slot_token)
    assert backlog.finish(execution_id=row.pk, token=row.slot_token, outcome=Outcome(response="done"))
    slots.release(lease=lease_of(row))


def fill(agent: Agent, count: int) -> None:
    """Put as many rows in the agent's line."""
    Execution.objects.bulk_create(
        Execution(agent=agent, agent_name=agent.name, status=Status.QUEUED, message=str(number), timeout_seconds=60)
        for number in range(count)
    )


# -- The setting -------------------------------------------------------------------------------------------------------
def test_everybody_reads_the_cap_and_superusers_set_it(api: Api, stranger: User, superuser: User, set_cap: Any, make_key: Any) -> None:
    assert api(stranger).get(f"{URL}/").json() == {"value": None, "on_full": "queue"}
    answer = set_cap(4, on_full="reject")
    assert (answer.status_code, answer.json()) == (200, {"value": 4, "on_full": "reject"})
    assert set_cap(5).json() == {"value": 5, "on_full": "reject"}, "what is left out stays"
    assert set_cap(None, on_full="queue").json() == {"value": None, "on_full": "queue"}
    assert api(None).get(URL).status_code == 401
    for by, code in ((stranger, "access_denied"), (make_key("system", owner=superuser), "person_required")):
        answer = api(by).put(URL, {"value": 1}, format="json")
        assert (answer.status_code, answer.json()["code"]) == (403, code)
    told = AuditEntry.objects.exclude(action="key_made").order_by("id").values_list("actor_name", "agent", "action", "before", "after")
    assert list(told) == [
        ("root", None, "max_concurrent_tasks", None, 4),
        ("root", None, "on_full", "queue", "reject"),
        ("root", None, "max_concurrent_tasks", 4, 5),
        ("root", None, "max_concurrent_tasks", 5, None),
        ("root", None, "on_full", "reject", "queue"),
    ]


def test_another_body_changes_nothing(api: Api, superuser: User) -> None:
    client = api(superuser)
    no_cap, no_choice = "value must be null or an integer between 1 and 100000", "on_full must be one of queue, reject"
    told: list[tuple[Any, str, str]] = [
        ({}, "required", "value is required"),
        *(({"value": value}, "invalid", no_cap) for value in (0, -1, 100_001, 10**30, "4", 4.0, True, [], {})),
        *(({"value": 4, "on_full": value}, "invalid", no_choice) for value in ("wait", "", None, 1)),
        ({"value": 4, "on_full": "queue\x00"}, "invalid", "Text must not contain NUL characters"),
        ({"value": 4, "max": 5}, "unknown_field", "Unknown field 'max'; the valid fields are value, on_full"),
        ([4], "invalid_body", "The request body must be a JSON object"),
    ]
    for body, code, detail in told:
        answer = client.put(URL, body, format="json")
        assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (400, code, detail), body
    assert not AuditEntry.objects.exists()


def test_the_first_cap_is_the_environments(settings: Any, api: Api, superuser: User) -> None:
    for first, value in ((0, None), (7, 7), (10**9, 100_000)):
        settings.TRINITY_MAX_CONCURRENT_TASKS = first
        FleetSettings.objects.all().delete()
        assert api(superuser).get(URL).json()["value"] == value
    assert api(superuser).put(URL, {"value": 9}, format="json").json() == {"value": 9, "on_full": "queue"}


# -- At the cap ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("request_says", "setting_says", "status"), [("queue", "queue", 202), ("reject", "queue", 429),
                                                                     ("queue", "reject", 429), ("reject", "reject", 429)])  # fmt: skip
def test_at_the_cap_either_may_refuse(
    set_cap: Any, post_task: Post, make_agent: Callable[..., Agent], request_says: str, setting_says: str, status: int
) -> None:
    busy, full, idle = make_agent(limit=2), make_agent(limit=1), make_agent()
    set_cap(2, on_full=setting_says)
    assert [post_task(to=agent).json()["status"] for agent in (busy, full)] == ["accepted", "accepted"]
    for agent in (idle, full):  # whether it has a slot of its own free or not
        answer = post_task(to=agent, on_full=request_says)
        assert answer.status_code == status
        if status == 429:
            problem = answer.json()
            assert (problem["code"], problem["detail"]) == ("fleet_at_capacity", "2 tasks already running, try again shortly")
            assert (problem["running"], problem["max_concurrent_tasks"]) == (2, 2)
            assert int(answer["Retry-After"]) >= 1
        else:
            assert answer.json()["status"] == "queued"
    assert Execution.objects.count() == (4 if status == 202 else 2)


def test_a_fleet_that_refuses_at_its_cap_refuses_behind_a_line_too(set_cap: Any, post_task: Post, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=3)
    set_cap(1)
    assert [post_task(to=agent).json()["status"] for _ in range(2)] == ["accepted", "queued"]
    set_cap(1, on_full="reject")
    assert post_task(to=agent).json()["code"] == "fleet_at_capacity"
    assert Execution.objects.count() == 2


def test_running_tells_how_many_run_after_a_cut(set_cap: Any, post_task: Post, make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=5)
    for _ in range(4):
        post_task(to=agent)
    set_cap(2)
    problem = post_task(to=agent, on_full="reject").json()
    assert (problem["running"], problem["max_concurrent_tasks"]) == (4, 2)
    assert len(running(agent)) == 4


def test_a_cut_kills_nothing_and_a_raise_or_none_starts_what_waits(
    set_cap: Any, post_task: Post, make_agent: Callable[..., Agent], api: Api, owner: User
) -> None:
    one, other = make_agent(limit=3), make_agent(limit=3)
    set_cap(2)
    for agent in (one, other) * 3:
        post_task(to=agent)
    assert (len(running(one)), len(running(other))) == (1, 1)
    waiting = Execution.objects.filter(status=Status.QUEUED).first()
    assert waiting is not None
    assert api(owner).get(f"/api/executions/{waiting.pk}/").json()["waiting_for"] == "fleet"
    set_cap(4)
    assert (len(running(one)), len(running(other))) == (2, 2)
    set_cap(1)
    assert (len(running(one)), len(running(other))) == (2, 2)
    assert end(running(one)[0]) == []
    set_cap(None)
    assert (len(running(one)), len(running(other))) == (2, 3)


def test_the_limit_of_each_agent_still_holds_below_the_cap(set_cap: Any, make_agent: Callable[..., Agent], post_task: Post) -> None:
    small, large = make_agent(limit=1), make_agent(limit=5)
    set_cap(4)
    for _ in range(6):
        post_task(to=small)
    for _ in range(6):
        post_task(to=large)
    assert (len(running(small)), len(running(large))) == (1, 3)


def test_requests_that_come_at_once_never_pass_the_cap(set_cap: Any, make_agent: Callable[..., Agent], post_task: Post) -> None:
    fleet = [make_agent(limit=3) for _ in range(6)]
    set_cap(4)
    barrier, answers = threading.Barrier(len(fleet) * 2), []

    def post(agent: Agent) -> None:
        barrier.wait()
        try:
            answers.append(post_task(to=agent).status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=post, args=(agent,)) for agent in fleet * 2]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert answers == [202] * 12
    housekeeping.sweep()
    assert slots.fleet_count() == Execution.objects.filter(status=Status.RUNNING).count() == 4


def test_a_cap_set_while_the_slot_store_is_away_holds_when_it_is_back(
    set_cap: Any, post_task: Post, make_agent: Callable[..., Agent], store_out_of_reach: Any
) -> None:
    agent = make_agent(limit=3)
    set_cap(1)
    for _ in range(3):
        post_task(to=agent)
    store_out_of_reach(True)
    assert set_cap(2).status_code == 200, "a fact in the database; what it opens, the sweep fills"
    store_out_of_reach(False)
    housekeeping.sweep()
    assert len(running(agent)) == 2


def test_under_a_cap_an_emptied_store_is_filled_by_whoever_comes_first(
    set_cap: Any, post_task: Post, make_agent: Callable[..., Agent], valkey: redis.Redis
) -> None:
    agent, other = make_agent(limit=3), make_agent()
    set_cap(2)
    for row in [post_task(to=agent).json()["execution_id"] for _ in range(2)]:
        granted = Execution.objects.get(pk=row)
        assert granted.slot_token is not None
        backlog.start(execution_id=granted.pk, token=granted.slot_token)
    valkey.flushdb()
    assert post_task(to=other, on_full="reject").json()["code"] == "fleet_at_capacity"
    assert len(slots.state(agent.name).holders) == 2


# -- Whose turn it is ----------------------------------------------------------------------------------------------------
def test_one_agents_five_hundred_rows_let_anothers_one_start_within_two_frees(
    set_cap: Any, post_task: Post, make_agent: Callable[..., Agent]
) -> None:
    crowd, single = make_agent(limit=10, depth=1000, name="a-crowd"), make_agent(limit=1, name="b-single")
    set_cap(4)
    for _ in range(5):
        post_task(to=crowd)
    fill(crowd, 495)
    assert (len(running(crowd)), Execution.objects.filter(agent=crowd).count()) == (4, 500)
    assert post_task(to=single).json()["status"] == "queued"
    got = [end(running(crowd)[0]) for _ in range(2)]
    assert [single.name] in got
    assert len(running(single)) == 1
    assert slots.fleet_count() == 4
    # Its place comes back to the crowd, which goes on four at a time.
    assert end(running(single)[0]) == [crowd.name]
    assert [end(running(crowd)[0]) for _ in range(5)] == [[crowd.name]] * 5
    assert len(running(crowd)) == 4


def test_agents_that_wait_share_the_places_evenly(set_cap: Any, make_agent: Callable[..., Agent]) -> None:
    lines = {"a": 200, "b": 40, "c": 20, "d": 10}
    for name, count in lines.items():
        fill(make_agent(limit=10, name=name, depth=1000), count)
    set_cap(4)
    assert {name: len(running(Agent.objects.get(name=name))) for name in lines} == dict.fromkeys(lines, 1)
    served: Counter[str] = Counter()
    for number in range(36):
        oldest = Execution.objects.filter(status=Status.RUNNING).order_by("granted_at", "id").first()
        assert oldest is not None
        served.update(end(oldest))
        if number % 4 == 3:
            assert len(set(served.values())) == 1, "one each, whatever its line holds"
    assert served == dict.fromkeys(lines, 9)
    # The shortest line is through; the others share what it leaves.
    for _ in range(12):
        oldest = Execution.objects.filter(status=Status.RUNNING).order_by("granted_at", "id").first()
        assert oldest is not None
        served.update(end(oldest))
    assert served == {"a": 13, "b": 13, "c": 13, "d": 9}


def test_an_agent_at_its_own_limit_gives_its_turn_to_the_next(set_cap: Any, post_task: Post, make_agent: Callable[..., Agent]) -> None:
    narrow, wide = make_agent(limit=1, name="a-narrow"), make_agent(limit=4, name="b-wide")
    set_cap(3)
    for _ in range(3):
        post_task(to=narrow)
    for _ in range(5):
        post_task(to=wide)
    assert (len(running(narrow)), len(running(wide))) == (1, 2)
    assert end(running(wide)[0]) == [wide.name]
    assert end(running(narrow)[0]) == [narrow.name]


def test_nobody_new_takes_the_place_that_another_agent_waits_for(set_cap: Any, post_task: Post, make_agent: Callable[..., Agent]) -> None:
    busy, patient, eager = make_agent(limit=1), make_agent(limit=1), make_agent(limit=1)
    set_cap(1)
    post_task(to=busy)
    waiting = post_task(to=patient).json()["execution_id"]
    # Its run has ended and its slot is free; the drain that follows has not come yet.
    row = running(busy)[0]
    assert row.slot_token is not None
    backlog.start(execution_id=row.pk, token=row.slot_token)
    assert backlog.finish(execution_id=row.pk, token=row.slot_token, outcome=Outcome(response="done"))
    slots.release(lease=Lease(agent=busy.name, execution_id=row.pk, token=row.slot_token, timeout_seconds=60))
    assert slots.fleet_count() == 0
    refused = post_task(to=eager, on_full="reject").json()
    assert (refused["code"], refused["running"]) == ("fleet_at_capacity", 0)
    assert post_task(to=eager).json()["status"] == "queued"
    assert [str(row.pk) for row in running(patient)] == [waiting]


def test_whoever_joins_a_line_or_raises_its_limit_does_not_jump_the_turn(
    set_cap: Any, post_task: Post, make_agent: Callable[..., Agent], api: Api, owner: User
) -> None:
    busy, patient = make_agent(limit=3), make_agent(limit=1)
    set_cap(1)
    post_task(to=busy)
    fill(busy, 2)
    fill(patient, 1)
    Agent.objects.filter(pk=busy.pk).update(served_at=patient.created_at)
    FleetSettings.objects.update(max_concurrent_tasks=2)  # nobody has drained since
    answer = api(owner).put(f"/api/agents/{busy.name}/capacity", {"max_parallel_tasks": 9}, format="json")
    assert answer.status_code == 200
    assert (len(running(busy)), len(running(patient))) == (1, 1)


def test_of_two_drains_at_once_each_serves_another_agent(set_cap: Any, make_agent: Callable[..., Agent], monkeypatch: Any) -> None:
    busy, first, second = (make_agent(limit=3) for _ in range(3))
    fill(busy, 2)
    manager.drain(busy.pk)
    fill(first, 3)
    fill(second, 3)
    set_cap(2)
    with_room = turns.with_room

    def looked_a_moment_ago() -> list[turns.Turn]:
        monkeypatch.setattr(turns, "with_room", with_room)
        seen, (one, other) = with_room(), running(busy)
        assert [turn.agent_id for turn in seen] == [first.pk, second.pk]
        assert end(one) == [first.name]
        slots.release(lease=lease_of(other))
        return seen

    monkeypatch.setattr(turns, "with_room", looked_a_moment_ago)
    assert [admission.lease.agent for admission in manager.drain(first.pk)] == [second.name]


@pytest.mark.parametrize("served_before", [False, True])
def test_a_turn_for_which_there_was_no_place_after_all_is_not_lost(
    set_cap: Any, make_agent: Callable[..., Agent], monkeypatch: Any, served_before: bool
) -> None:
    waiting, quick = make_agent(), make_agent()
    set_cap(1)
    fill(waiting, 2)
    if served_before:
        manager.drain(waiting.pk)
        end_without_drain(running(waiting)[0])
    before = Agent.objects.get(pk=waiting.pk).served_at
    assert (before is not None) == served_before
    take = turns.take

    def taken_by_another(turn: turns.Turn) -> bool:
        held = Lease(agent=quick.name, execution_id=uuid.uuid4(), token=uuid.uuid4(), timeout_seconds=60)
        slots.acquire(lease=held, limit=1, fleet_limit=1, preview="")
        return take(turn)

    monkeypatch.setattr(turns, "take", taken_by_another)
    assert manager.drain(waiting.pk) == ()
    assert Agent.objects.get(pk=waiting.pk).served_at == before


def test_what_a_deleted_agents_run_leaves_is_the_fleets(
    set_cap: Any, post_task: Post, make_agent: Callable[..., Agent], owner: User, api: Api
) -> None:
    leaving, waiting = make_agent(limit=1), make_agent(limit=1)
    set_cap(1)
    post_task(to=leaving)
    post_task(to=waiting)
    assert api(owner).delete(f"/api/agents/{leaving.name}/").status_code == 204
    agents.finish_deletions()
    assert len(running(waiting)) == 1
