"""What is told of executions that wait: the one explanation, over HTTP."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from backlog.models import Execution
from fleet.models import FleetSettings, Session
from runtime.standing import standing
from tests.runtime.histories import begin, remember_runs


@pytest.fixture
def told(api: Any, owner: Any) -> Callable[[Any], dict[str, Any]]:
    """What is told of the execution that a submit's answer names."""

    def read(answer: Any) -> dict[str, Any]:
        return api(owner).get(f"/api/executions/{answer.json()['execution_id']}/").json()

    return read


def moments(body: dict[str, Any]) -> tuple[datetime, datetime]:
    """The range in which it should start."""
    earliest, latest = (parse_datetime(body["estimated_start"][name]) for name in ("earliest", "latest"))
    assert earliest is not None
    assert latest is not None
    return earliest, latest


def test_the_expected_start_follows_from_run_times_ages_and_the_place_in_line(post_task, make_agent, told):
    single = make_agent(limit=1)
    remember_runs(single, [20.0] * 8)
    begin(post_task(to=single), seconds_ago=5)
    waiting = [post_task(to=single) for _ in range(3)]
    for place, answer in enumerate(waiting, start=1):
        began = timezone.now()
        body = told(answer)
        earliest, latest = moments(body)
        expected = began + timedelta(seconds=15 + 20 * (place - 1))
        assert earliest - timedelta(seconds=2) <= expected <= latest + timedelta(seconds=2)
        assert latest - earliest <= timedelta(seconds=3)
        assert (body["queue_position"], body["waiting_for"]) == (place, "slot")


def test_lists_the_line_and_the_execution_tell_the_same(api, owner, post_task, make_agent, told):
    single = make_agent(limit=1)
    remember_runs(single, [2000.0] * 8)
    begin(post_task(to=single), seconds_ago=5)
    alone = told(post_task(to=single))
    [in_line] = api(owner).get(f"/api/agents/{single.name}/queue/").json()["results"]
    listed = next(row for row in api(owner).get("/api/executions/?status=queued").json()["results"])
    for other in (in_line, listed):
        assert (other["queue_position"], other["waiting_for"]) == (alone["queue_position"], alone["waiting_for"])
        for a, b in zip(moments(other), moments(alone), strict=True):
            assert abs(a - b) <= timedelta(seconds=2)


def test_more_slots_bring_the_start_nearer(post_task, make_agent, told):
    agents = [make_agent(limit=limit) for limit in (1, 3)]
    for agent in agents:
        remember_runs(agent, [30.0] * 8)
        for _ in range(agent.max_parallel_tasks):
            begin(post_task(to=agent), seconds_ago=0)
        for _ in range(2):
            post_task(to=agent)
    slow, fast = (moments(told(post_task(to=agent)))[0] for agent in agents)
    assert slow - fast > timedelta(seconds=50)


def test_nothing_is_foretold_without_runs_or_while_paused_or_at_the_fleets_cap_or_behind_a_session(post_task, make_agent, owner, told):
    single = make_agent(limit=1)
    post_task(to=single)
    waits = post_task(to=single)
    assert told(waits)["estimated_start"] is None
    remember_runs(single, [20.0] * 8)
    assert told(waits)["estimated_start"] is not None
    FleetSettings.objects.update(max_concurrent_tasks=1)
    assert (told(waits)["waiting_for"], told(waits)["estimated_start"]) == ("fleet", None)
    FleetSettings.objects.update(max_concurrent_tasks=None)
    type(single).objects.update(paused=True)
    assert (told(waits)["waiting_for"], told(waits)["estimated_start"]) == ("paused", None)
    type(single).objects.update(paused=False)
    session = str(Session.objects.create(agent=single, owner=owner).pk)
    first, second = (post_task(to=single, session_id=session) for _ in range(2))
    assert (told(second)["waiting_for"], told(second)["estimated_start"]) == ("session", None)
    assert moments(told(first))[0] < moments(told(post_task(to=single)))[1]


def test_what_runs_or_has_ended_is_not_foretold(post_task, agent, carry, told):
    remember_runs(agent, [20.0] * 8)
    answer = post_task()
    assert (told(answer)["waiting_for"], told(answer)["estimated_start"]) == ("worker", None)
    carry(answer.json()["execution_id"])
    assert (told(answer)["waiting_for"], told(answer)["estimated_start"], told(answer)["queue_position"]) == (None, None, None)


def test_rows_that_wait_for_their_sessions_may_go_first_or_stay_behind(post_task, make_agent, owner):
    single = make_agent(limit=1)
    remember_runs(single, [20.0] * 8)
    session = str(Session.objects.create(agent=single, owner=owner).pk)
    begin(post_task(to=single, session_id=session), seconds_ago=0)
    post_task(to=single, session_id=session)
    row = Execution.objects.select_related("agent").get(pk=post_task(to=single).json()["execution_id"])
    expected = standing(row)
    assert expected.queue_position == 2
    assert expected.estimated_start is not None
    assert timedelta(seconds=18) <= expected.estimated_start.latest - expected.estimated_start.earliest <= timedelta(seconds=25)


def test_a_page_costs_the_same_however_many_agents_wait_on_it(api, owner, post_task, make_agent):
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert api(owner).get("/api/executions/?status=queued").status_code == 200
        return len(queries)

    def fill(count: int) -> None:
        for _ in range(count):
            single = make_agent(limit=1)
            remember_runs(single, [20.0] * 8)
            for _ in range(3):
                post_task(to=single)

    fill(1)
    few = cost()
    fill(5)
    assert cost() == few
