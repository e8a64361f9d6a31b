"""What-if over HTTP: the past of real rows under other limits."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog.models import Execution, Status, Trigger
from fleet.models import Agent
from runtime import what_if

Ask = Callable[..., Any]


@pytest.fixture
def agent(make_agent: Callable[..., Agent]) -> Agent:
    """One slot, room for three in line."""
    return make_agent(limit=1, depth=3)


@pytest.fixture
def ask(api: Any, owner: Any, agent: Agent) -> Ask:
    """`ask(limit="1-3", window="7d")`: the answer for the agent."""
    return lambda by=owner, **asked: api(by).get(f"/api/agents/{agent.name}/what-if", asked)


@pytest.fixture
def remember(agent: Agent) -> Callable[..., Execution]:
    """Makes a row of the past: `remember(arrived, granted, ended)`, each so many seconds after an hour ago; None for never."""
    begun = timezone.now() - timedelta(hours=1)

    def at(seconds: float | None) -> Any:
        return None if seconds is None else begun + timedelta(seconds=seconds)

    def make(arrived: float, granted: float | None, ended: float | None, **more: Any) -> Execution:
        never_ran = Status.CANCELLED if ended is not None else Status.QUEUED
        return Execution.objects.create(
            **{
                "agent": agent, "agent_name": agent.name, "message": "earlier", "timeout_seconds": 900, "created_at": at(arrived),
                "queued_at": at(arrived), "granted_at": at(granted), "started_at": at(granted), "completed_at": at(ended),
                "status": never_ran if granted is None else Status.SUCCESS,
            } | more,
        )  # fmt: skip

    return make


def test_the_limit_that_there_was_gives_the_waits_that_there_were_and_more_slots_shorter_ones(ask: Ask, remember: Any) -> None:
    for number in range(4):
        remember(number, 100 * number, 100 * (number + 1))
    body = ask(limit="1-5").json()
    assert [body[name] for name in ("window", "arrivals", "limit", "depth", "truncated", "assumed_runs", "typical_run_seconds")] == [
        "24h", 4, 1, 3, False, 0, 100.0,
    ]  # fmt: skip
    one, two, three, four, five = body["results"]
    assert {name: one[name] for name in body["actual"]} == body["actual"]
    assert (one["wait_p50_seconds"], one["wait_p95_seconds"], one["peak_running"], one["peak_waiting"]) == (99, 297, 1, 3)
    assert one["utilisation"] == pytest.approx(400 / 86_400, abs=1e-4)
    assert [result["wait_p95_seconds"] for result in (two, three, four, five)] == [98, 97, 0, 0]
    assert [result["limit"] for result in body["results"]] == [1, 2, 3, 4, 5]
    assert five["peak_running"] == 4


def test_a_shorter_line_would_have_refused(ask: Ask, remember: Any) -> None:
    for number in range(4):
        remember(number, 100 * number, 100 * (number + 1))
    body = ask(limit=1, depth=1).json()
    assert (body["depth"], [result["rejected"] for result in body["results"]]) == (1, [2])
    assert "rejected" not in body["actual"]


def test_what_never_ran_leaves_when_it_did_and_takes_a_typical_run_where_it_would_have_started(ask: Ask, remember: Any) -> None:
    remember(0, 0, 100)
    remember(1, None, 50)
    remember(2, None, None)
    remember(3, 100, 160, triggered_by=Trigger.PUBLIC)
    remember(4, None, 5, status=Status.FAILED, error_code="access_lost")
    body = ask(limit="1-2").json()
    one, two = body["results"]
    assert (body["arrivals"], body["assumed_runs"], body["typical_run_seconds"]) == (5, 2, 80)
    assert (one["started"], one["left"], one["rejected"]) == (2, 2, 1)
    assert two["started"] == 3
    assert (body["actual"]["started"], body["actual"]["left"]) == (2, 2)


def test_what_ran_or_waited_when_the_window_begins_is_played_and_not_counted(ask: Ask, remember: Any) -> None:
    day = 86_400
    remember(-day - 100, -day - 100, -day + 4_000)
    remember(-day - 90, -day + 4_000, -day + 4_100)
    remember(-day + 3_700, -day + 4_100, -day + 4_200)
    for window, arrivals in (("24h", 1), ("7d", 3)):
        body = ask(limit=1, window=window).json()
        assert body["arrivals"] == body["actual"]["started"] == arrivals
        assert body["results"][0]["wait_p95_seconds"] == body["actual"]["wait_p95_seconds"]


def test_an_agent_without_a_past_has_no_waits(ask: Ask) -> None:
    body = ask().json()
    assert body["arrivals"] == 0
    assert len(body["results"]) == 10
    assert {result["wait_p95_seconds"] for result in body["results"]} == {None}


def test_of_too_many_rows_the_newest_are_replayed(ask: Ask, remember: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        remember(number, number, number + 1)
    monkeypatch.setattr(what_if, "MOST_STEPS", 6)
    body = ask(limit="1-2").json()
    assert (body["truncated"], body["arrivals"], body["actual"]["started"]) == (True, 3, 3)
    assert body["since"] > ask(limit=1).json()["since"]


def test_an_answer_is_kept_until_something_came_or_ended(ask: Ask, remember: Any) -> None:
    remember(0, 0, 10)
    with CaptureQueriesContext(connection) as first:
        known = ask(limit=2).json()
    with CaptureQueriesContext(connection) as second:
        assert ask(limit=2).json() == known
    assert (len(first), len(first) - len(second)) == (len(second) + 4, 4)
    remember(5, 10, 20)
    assert ask(limit=2).json()["arrivals"] == 2


def test_the_queries_are_as_many_for_many_rows(ask: Ask, remember: Any) -> None:
    counts = []
    for _ in range(2):
        for number in range(20):
            remember(number, number, number + 1)
        with CaptureQueriesContext(connection) as queries:
            ask()
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 10


def test_while_other_replays_keep_the_process_busy_what_is_not_known_is_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "PATIENCE_SECONDS", 0.01)
    what_if._answers.kept.clear()
    with what_if._working:
        answer = ask()
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (429, "throttled", "1")
    worked_out = ask().json()
    with what_if._working:
        assert ask().json() == worked_out


@pytest.mark.parametrize(
    "asked",
    [
        *({"limit": limit} for limit in ("0", "33", "5-1", "1-33", "-1", "1-", "a", "1,2", "", "١", "1\n", "1-2-3", "9" * 99, ["1", "2"])),
        {"window": "30d"}, {"window": ""}, {"depth": "-1"}, {"depth": "10001"}, {"depth": "x"}, {"days": "1"},
    ],
)  # fmt: skip
def test_what_is_no_limit_window_or_depth_is_refused(ask: Ask, asked: dict[str, Any]) -> None:
    answer = ask(**asked)
    assert (answer.status_code, next(iter(asked)) in answer.json()["detail"]) == (400, True)


def test_strangers_and_unknown_agents_are_refused(ask: Ask, api: Any, owner: Any, stranger: Any) -> None:
    assert ask(by=stranger).status_code == 403
    assert ask(by=None).status_code == 401
    assert api(owner).get("/api/agents/nobody/what-if/").status_code == 404
