"""Processes that die by SIGKILL between two steps that belong together: nothing is lost, nothing leaks, nothing runs twice."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import seen
from tests.agents.server import AgentServer
from tests.environment import temporary_directory
from tests.flows.submitting import all_ended, execution, submit
from tests.stack import Stack, StackProcess

Until = Callable[..., Any]
SECONDS = 40.0

# Where the steps of a life meet. Web: submits and raised limits. Worker: starts, ends and handovers, repair, rebuild.
SLOT_WITHOUT_ROW = "backlog.services:insert_running:before"
ROW_UNPUBLISHED = "runtime.dispatch:start:before"
ROW_NOT_DRAINED = "capacity.manager:CapacityManager._moved_up:before"
SLOT_UNCLAIMED = "backlog.services:claim:before"
CLAIM_UNPUBLISHED = "backlog.services:claim:after"
CANCEL_UNTOLD = "backlog.services:cancel_queued:after"
MESSAGE_TAKEN = "runtime.services.runs:begin_run:before"
LEASE_STARTED = "backlog.services:start:before"
ROW_STARTED = "backlog.services:start:after"
RESULT_UNWRITTEN = "runtime.services.runs:end_run:before"
RESULT_UNRELEASED = "runtime.services.runs:_given_back:before"
NEXT_CLAIMED = "capacity.manager:CapacityManager.handover:before"
SLOT_MOVED = "capacity.manager:CapacityManager.handover:after"
NEXT_STARTED = "runtime.services.runs:_start_granted:after"
FENCED = "backlog.services:fence_lost:after"
TOKEN_CLEARED = "backlog.services:clear_token:after"
GATE_EMPTY = "capacity.slots:rebuild_write:before"
GATE_FILLED = "capacity.slots:rebuild_open:before"
POINTS = tuple(value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str))


class Mortal:
    """A stack whose processes die where they are told to."""

    def __init__(self, directory: Path) -> None:
        self._armed = directory / "armed"
        self._armed.mkdir()
        through = ["-m", "tests.chaos.crashing", str(self._armed), *POINTS, "--"]
        quick = {"TRINITY_LEASE_SECONDS": "4", "TRINITY_REDISPATCH_SECONDS": "2", "TRINITY_ORPHAN_SECONDS": "2"}
        self.stack = Stack(directory / "stack", through=through, **quick)

    def arm(self, role: str, point: str) -> None:
        """Whoever of `role` gets there next dies."""
        draft = self._armed / "draft"
        draft.write_text(point)
        draft.rename(self._armed / role)

    def bury(self, process: StackProcess, until: Until) -> None:
        """See that it died there."""
        until(lambda: not process.running, SECONDS)
        assert process.process.returncode == -9
        assert not (self._armed / "worker").exists()
        assert not (self._armed / "web").exists()

    def bury_worker(self, until: Until) -> None:
        """See that the only worker died there, and start the next."""
        self.bury(self.stack.workers[0], until)
        self.stack.workers.clear()
        self.stack.start_worker()

    def bury_web(self, until: Until) -> None:
        """See that the web process died there, and start the next."""
        self.bury(self.stack.web, until)
        self.stack.webs[0] = self.stack.start_web()


@pytest.fixture(scope="module")
def _mortal() -> Iterator[Mortal]:
    mortal = Mortal(temporary_directory())
    yield mortal
    mortal.stack.close()


@pytest.fixture
def mortal(_mortal: Mortal) -> Mortal:
    """It, whole."""
    _mortal.stack.ensure_whole()
    return _mortal


def http_agent(mortal: Mortal, server: AgentServer, *, limit: int = 1) -> str:
    """An agent of `server`."""
    return mortal.stack.make_agent(runtime={"kind": "http", "url": server.url}, limit=limit)


def check_whole(mortal: Mortal, agent: str, until: Until) -> None:
    """Slots and rows agree, and the agent takes and ends a task as ever."""
    stack = mortal.stack
    seen.check_rest(stack.sql, stack.redis, names=[agent], seconds=SECONDS)
    after = submit(stack.api(), agent, "after")
    until(lambda: all_ended(stack.api(), [after["execution_id"]]), SECONDS)
    assert execution(stack.api(), after["execution_id"])["status"] == "success"
    seen.check_rest(stack.sql, stack.redis, names=[agent])
    assert [holder for holder in seen.holders_of(stack.redis) if holder.agent == agent] == []


def ends(mortal: Mortal, ids: list[str]) -> list[str]:
    """How executions ended: their status, or the code of their failure."""
    shown = [execution(mortal.stack.api(), one) for one in ids]
    return [one["error_code"] if one["status"] == "failed" else one["status"] for one in shown]


# -- The web process ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("point", [SLOT_WITHOUT_ROW, ROW_UNPUBLISHED, ROW_NOT_DRAINED])
def test_a_submit_whose_web_process_dies_is_made_once_by_its_key(
    point: str, mortal: Mortal, agent_server: AgentServer, until: Until
) -> None:
    agent, api = http_agent(mortal, agent_server), mortal.stack.api()
    before = [submit(api, agent, "hang")["execution_id"]] if point == ROW_NOT_DRAINED else []
    until(lambda: agent_server.active == len(before))
    request = {"json": {"message": "once", "async_mode": True}, "headers": {"Idempotency-Key": "once"}}
    mortal.arm("web", point)
    with pytest.raises(httpx.TransportError):
        api.post(f"/api/agents/{agent}/task", **request)  # type: ignore[arg-type]
    mortal.bury_web(until)
    answer = mortal.stack.api().post(f"/api/agents/{agent}/task", **request)  # type: ignore[arg-type]
    assert answer.status_code == 202, answer.text
    agent_server.let_go()
    ids = [*before, answer.json()["execution_id"]]
    until(lambda: all_ended(api, ids), SECONDS)
    assert ends(mortal, ids) == ["success"] * len(ids)
    assert Counter(agent_server.started) == dict.fromkeys(ids, 1)
    check_whole(mortal, agent, until)


@pytest.mark.parametrize("point", [SLOT_UNCLAIMED, CLAIM_UNPUBLISHED])
def test_a_row_that_a_dying_web_process_was_admitting_starts_all_the_same(
    point: str, mortal: Mortal, agent_server: AgentServer, until: Until
) -> None:
    agent, api = http_agent(mortal, agent_server), mortal.stack.api()
    ids = [submit(api, agent, "hang")["execution_id"] for _ in range(2)]
    until(lambda: agent_server.active == 1)
    mortal.arm("web", point)
    with pytest.raises(httpx.TransportError):
        api.put(f"/api/agents/{agent}/capacity", json={"max_parallel_tasks": 2})
    mortal.bury_web(until)
    until(lambda: agent_server.active == 2, SECONDS)
    agent_server.let_go()
    until(lambda: all_ended(api, ids), SECONDS)
    assert Counter(agent_server.started) == dict.fromkeys(ids, 1)
    check_whole(mortal, agent, until)


def test_a_cancel_whose_web_process_dies_is_kept(mortal: Mortal, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(mortal, agent_server), mortal.stack.api()
    running, cancelled, waiting = (submit(api, agent, "hang")["execution_id"] for _ in range(3))
    until(lambda: agent_server.active == 1)
    mortal.arm("web", CANCEL_UNTOLD)
    with pytest.raises(httpx.TransportError):
        api.post(f"/api/executions/{cancelled}/cancel/")
    mortal.bury_web(until)
    again = mortal.stack.api().post(f"/api/executions/{cancelled}/cancel/")
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")
    agent_server.let_go()
    until(lambda: all_ended(api, [running, waiting]), SECONDS)
    assert ends(mortal, [running, cancelled, waiting]) == ["success", "cancelled", "success"]
    assert Counter(agent_server.started) == dict.fromkeys([running, waiting], 1)
    check_whole(mortal, agent, until)


# -- The worker --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("point", "expected", "begun"),
    [
        pytest.param(MESSAGE_TAKEN, ["success", "success"], [1, 1], id="its message was taken"),
        pytest.param(LEASE_STARTED, ["success", "success"], [1, 1], id="its lease began, its row did not"),
        pytest.param(ROW_STARTED, ["worker_lost", "success"], [0, 1], id="its row began, its work did not"),
        pytest.param(RESULT_UNWRITTEN, ["worker_lost", "success"], [1, 1], id="its work was over, its result not written"),
        pytest.param(NEXT_CLAIMED, ["success", "success"], [1, 1], id="in place: claimed, the slot not moved"),
        pytest.param(SLOT_MOVED, ["success", "success"], [1, 1], id="in place: the slot moved, the row not begun"),
        pytest.param(NEXT_STARTED, ["success", "worker_lost"], [1, 0], id="in place: the row begun, its work not"),
    ],
)
def test_a_worker_that_dies_between_two_steps_leaves_nothing_behind(
    point: str, expected: list[str], begun: list[int], mortal: Mortal, agent_server: AgentServer, until: Until
) -> None:
    agent, api = http_agent(mortal, agent_server), mortal.stack.api()
    mortal.arm("worker", point)
    ids = [submit(api, agent, "sleep=0.7 task")["execution_id"] for _ in range(2)]
    mortal.bury_worker(until)
    until(lambda: all_ended(api, ids), SECONDS)
    assert ends(mortal, ids) == expected
    assert Counter(agent_server.started) == Counter(dict(zip(ids, begun, strict=True)))
    assert agent_server.peak == 1
    check_whole(mortal, agent, until)


def test_a_result_whose_slot_was_not_given_back_frees_it_by_repair(mortal: Mortal, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(mortal, agent_server), mortal.stack.api()
    mortal.arm("worker", RESULT_UNRELEASED)
    only = submit(api, agent, "the last in line")["execution_id"]
    mortal.bury_worker(until)
    assert ends(mortal, [only]) == ["success"]
    check_whole(mortal, agent, until)
    assert agent_server.started.count(only) == 1


@pytest.mark.parametrize("point", [FENCED, TOKEN_CLEARED])
def test_a_repair_that_dies_midway_is_ended_by_the_next(point: str, mortal: Mortal, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(mortal, agent_server), mortal.stack.api()
    lost, waiting = (submit(api, agent, message)["execution_id"] for message in ("hang", "waits"))
    until(lambda: agent_server.active == 1)
    mortal.stack.kill_worker()
    mortal.arm("worker", point)
    mortal.stack.start_worker(ready=False)
    mortal.bury_worker(until)
    until(lambda: all_ended(api, [lost, waiting]), SECONDS)
    assert ends(mortal, [lost, waiting]) == ["worker_lost", "success"]
    assert Counter(agent_server.started) == dict.fromkeys([lost, waiting], 1)
    assert agent_server.peak == 1
    check_whole(mortal, agent, until)


@pytest.mark.parametrize("point", [GATE_EMPTY, GATE_FILLED])
def test_a_rebuild_that_dies_midway_is_made_by_the_next(point: str, mortal: Mortal, agent_server: AgentServer, until: Until) -> None:
    agent, api = http_agent(mortal, agent_server), mortal.stack.api()
    lost, waiting = (submit(api, agent, message)["execution_id"] for message in ("hang", "waits"))
    until(lambda: agent_server.active == 1)
    mortal.arm("worker", point)
    mortal.stack.redis.flushall()
    mortal.bury_worker(until)
    until(lambda: all_ended(api, [lost, waiting]), SECONDS)
    assert ends(mortal, [lost, waiting]) == ["worker_lost", "success"]
    assert agent_server.peak == 1
    check_whole(mortal, agent, until)
