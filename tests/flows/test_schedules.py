"""Schedules beside real workers: two housekeepers, killed and started again in between, and each due time has one execution."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.agents.server import AgentServer
from tests.flows.submitting import unsettled
from tests.stack import Stack

Until = Callable[..., Any]

#: Shorter than the API lets anybody have it.
INTERVAL_SECONDS = 2
SCHEDULES = 3


def every_two_seconds(stack: Stack, agent: str, name: str) -> str:
    """The path of a new schedule of the agent, due from now on."""
    made = stack.api().post(f"/api/agents/{agent}/schedules/", json={"name": name, "message": f"scheduled {name}", "interval_seconds": 60})
    assert made.status_code == 201, made.text
    due = "UPDATE runtime_schedule SET interval_seconds = %s, next_due_at = anchor_at WHERE name = %s"
    stack.sql(due, INTERVAL_SECONDS, name)
    return f"/api/agents/{agent}/schedules/{made.json()['id']}/"


def firings(stack: Stack, path: str) -> list[dict[str, Any]]:
    """The schedule's firings, the first one first."""
    listed = stack.api().get(f"{path}firings/", params={"limit": 200}).json()["results"]
    return sorted(listed, key=lambda firing: firing["due_at"])


@pytest.fixture
def doubled(tmp_path: Path) -> Iterator[Stack]:
    """Two web processes and two workers."""
    stack = Stack(tmp_path, webs=2, workers=2)
    yield stack
    stack.close()


def test_each_due_time_has_one_execution_though_both_workers_are_killed(doubled: Stack, agent_server: AgentServer, until: Until) -> None:
    stack, ledger = doubled, agent_server.at("scheduled")
    agent = stack.make_agent(runtime={"kind": "http", "url": ledger.url}, limit=SCHEDULES)
    paths = [every_two_seconds(stack, agent, f"s{number} of {agent}") for number in range(SCHEDULES)]

    def settled_since(before: int) -> bool:
        return all(len([one for one in firings(stack, path) if one["outcome"] == "submitted"]) >= before + 2 for path in paths)

    until(lambda: settled_since(0), 30)
    for worker in list(stack.workers):
        stack.kill_worker(worker)
    seen = max(len(firings(stack, path)) for path in paths)
    until(lambda: _now_of(stack) > _last_due(stack, paths) + timedelta(seconds=2 * INTERVAL_SECONDS), 30)
    for _ in range(2):
        stack.start_worker()
    until(lambda: settled_since(seen), 30)
    for path in paths:
        assert stack.api().patch(path, json={"enabled": False}).json()["next_run_at"] is None
    until(lambda: unsettled(stack, agent) == 0, 60)

    made = [one for path in paths for one in firings(stack, path)]
    assert {one["outcome"] for one in made} == {"submitted"}
    rows = stack.api().get(f"/api/agents/{agent}/executions/", params={"limit": 200}).json()["results"]
    assert sorted(row["id"] for row in rows) == sorted(one["execution_id"] for one in made)
    assert {row["triggered_by"] for row in rows} == {"schedule"}
    assert {row["error_code"] for row in rows} <= {None, "worker_lost"}, "of one that was under way when its worker was killed"
    assert set(Counter(ledger.started).values()) == {1}
    for path in paths:
        _assert_without_a_gap(firings(stack, path))
    assert sum(one["skipped"] for one in made) >= SCHEDULES, "what went by while nobody looked is told"


def _assert_without_a_gap(fired: list[dict[str, Any]]) -> None:
    """Each due time is a firing, or is counted by the next one."""
    times = [datetime.fromisoformat(one["due_at"]) for one in fired]
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert steps == [timedelta(seconds=INTERVAL_SECONDS * (one["skipped"] + 1)) for one in fired[1:]]


def _last_due(stack: Stack, paths: list[str]) -> datetime:
    return max(datetime.fromisoformat(firings(stack, path)[-1]["due_at"]) for path in paths)


def _now_of(stack: Stack) -> datetime:
    return datetime.fromisoformat(stack.api().get("/api/agents/slots").json()["timestamp"])
