"""`Retry-After` over HTTP: from known run times, for each reason to refuse."""

import math
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog.models import Execution, Status
from capacity.errors import AgentPaused
from core.api import problem_response
from core.errors import Busy, Throttled, TrinityError, Unavailable
from fleet.models import FleetSettings, Session
from tests.runtime.histories import begin, remember_runs


def fits(answer, seconds: float) -> bool:
    """Whether the answer says `seconds`, or up to a fifth more; one more where the second has passed meanwhile."""
    return max(1, math.floor(seconds) - 1) <= int(answer["Retry-After"]) <= math.ceil(1.2 * seconds)


def test_at_capacity_it_is_when_the_first_run_should_end(post_task, make_agent):
    busy = make_agent(limit=2)
    remember_runs(busy, [20.0] * 6)
    for age in (4, 12):
        begin(post_task(to=busy), seconds_ago=age)
    answer = post_task(to=busy, on_full="reject")
    assert (answer.status_code, answer.json()["code"]) == (429, "at_capacity")
    assert fits(answer, 8)


def test_whoever_does_not_wait_in_line_comes_after_all_who_do(post_task, make_agent):
    busy = make_agent(limit=1)
    remember_runs(busy, [20.0] * 6)
    begin(post_task(to=busy), seconds_ago=5)
    for _ in range(3):
        post_task(to=busy)
    assert fits(post_task(to=busy, on_full="reject"), 15 + 3 * 20)


def test_a_place_in_a_full_line_frees_with_the_next_start(post_task, make_agent):
    busy = make_agent(limit=1, depth=2)
    remember_runs(busy, [20.0] * 6)
    begin(post_task(to=busy), seconds_ago=5)
    for _ in range(2):
        post_task(to=busy)
    answer = post_task(to=busy)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "backlog_full")
    load = {name: problem[name] for name in ("active_slots", "max_parallel_tasks", "queued", "max_backlog_depth")}
    assert load == {"active_slots": 1, "max_parallel_tasks": 1, "queued": 2, "max_backlog_depth": 2}
    assert fits(answer, 15)


def test_without_a_run_behind_it_half_a_minute_is_assumed(post_task, make_agent):
    busy = make_agent(limit=1)
    post_task(to=busy)
    assert fits(post_task(to=busy, on_full="reject"), 30)


def test_at_the_fleets_cap_any_agents_end_counts(post_task, make_agent):
    FleetSettings.objects.update(max_concurrent_tasks=2)
    mine = make_agent()
    remember_runs(mine, [20.0] * 6)
    for age in (2, 15):
        begin(post_task(to=make_agent()), seconds_ago=age)
    answer = post_task(to=mine, on_full="reject")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["running"], problem["max_concurrent_tasks"]) == (429, "fleet_at_capacity", 2, 2)
    assert fits(answer, 5)


def test_a_busy_session_is_free_after_all_its_tasks(post_task, make_agent, owner):
    agent = make_agent()
    remember_runs(agent, [20.0] * 6)
    session = str(Session.objects.create(agent=agent, owner=owner).pk)
    first = post_task(to=agent, session_id=session)
    begin(first, seconds_ago=10)
    post_task(to=agent, session_id=session)
    answer = post_task(to=agent, session_id=session, on_full="reject")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["execution_id"]) == (429, "session_busy", first.json()["execution_id"])
    load = {name: problem[name] for name in ("active_slots", "max_parallel_tasks", "queued", "max_backlog_depth")}
    assert load == {"active_slots": 1, "max_parallel_tasks": 3, "queued": 1, "max_backlog_depth": 50}
    assert fits(answer, 30)


def test_a_pause_is_asked_about_every_half_minute(post_task, make_agent):
    answer = post_task(to=make_agent(paused=True), on_full="reject")
    assert (answer.status_code, answer.json()["code"]) == (503, "agent_paused")
    assert fits(answer, 30)


def test_only_the_last_runs_count_and_neither_those_in_line_nor_those_that_never_ran(post_task, make_agent):
    busy = make_agent(limit=1)
    remember_runs(busy, [500.0] * 60, ended_ago=timedelta(days=1))
    remember_runs(busy, [20.0] * 50)
    never = {"message": "m", "timeout_seconds": 60, "completed_at": timezone.now()}
    Execution.objects.create(agent=busy, agent_name=busy.name, status=Status.FAILED, **never)
    begin(post_task(to=busy), seconds_ago=10)
    assert fits(post_task(to=busy, on_full="reject"), 10)


def test_an_accepted_task_pays_nothing_for_it_and_a_refused_one_two_queries(post_task, make_agent):
    busy = make_agent(limit=1)
    with CaptureQueriesContext(connection) as accepted:
        post_task(to=busy)
    with CaptureQueriesContext(connection) as refused:
        assert post_task(to=busy, on_full="reject").status_code == 429
    looks = [query["sql"] for query in refused if "started_at" in query["sql"]]
    assert [query["sql"] for query in accepted if "json_" in query["sql"] and "started_at" in query["sql"]] == []
    assert len(looks) == 1


@pytest.mark.parametrize("path", ["/api/agents/slots", "/api/agents/{name}/capacity"])
def test_an_unreachable_store_is_told_with_a_time_as_well(api, owner, agent, store_out_of_reach, path):
    store_out_of_reach(True)
    answer = api(owner).get(path.format(name=agent.name))
    assert (answer.status_code, answer.json()["code"]) == (503, "slots_unavailable")
    assert 1 <= int(answer["Retry-After"]) <= 300


def refusals() -> list[type[TrinityError]]:
    """Every class whose answer is a 429 or a 503."""
    found, todo = [], [Busy, Unavailable]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += kind.__subclasses__()
    return sorted(set(found), key=lambda kind: (kind.__module__, kind.__name__))


#: Those that are not made of a sentence alone.
MADE = {AgentPaused: lambda: AgentPaused(agent="a"), Throttled: lambda: Throttled(0.2)}


@pytest.mark.parametrize("kind", refusals(), ids=lambda kind: kind.__name__)
def test_no_refusal_leaves_out_when_to_come_back(kind):
    answer = problem_response(MADE.get(kind, lambda: kind("refused"))())
    assert answer.status in (429, 503)
    assert 1 <= int(answer.headers["Retry-After"]) <= 300
