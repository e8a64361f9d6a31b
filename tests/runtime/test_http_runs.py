"""Runs at an HTTP agent with their rows, slots and event logs: streams, cancels and time limits."""

import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from backlog.models import Execution, ExecutionEvent, Status
from capacity import slots
from fleet.models import Agent
from runtime.runtimes import http
from runtime.services import repair, runs
from runtime.services.event_log import EventLog
from tests.agents.hostile import RESULT
from tests.agents.server import AgentServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
ROOT = Path(__file__).parents[2]
Until = Callable[..., Any]
Post = Callable[..., Any]


@pytest.fixture
def far(make_agent: Callable[..., Agent], agent_server: AgentServer) -> Agent:
    """An agent of three slots at the HTTP server."""
    return make_agent(limit=3, runtime={"kind": "http", "url": agent_server.url})


@pytest.fixture
def begin(post_task: Post, agent_server: AgentServer) -> Iterator[Callable[..., "Began"]]:
    """Submits a task and runs it in a thread of its own: `begin(agent, "text", **body)`."""
    with ThreadPoolExecutor(8) as pool:

        def start(agent: Agent, message: str, **body: Any) -> Began:
            answer = post_task(message, to=agent, **body)
            assert answer.status_code == 202, answer.json()
            row = Execution.objects.get(pk=answer.json()["execution_id"])
            assert row.slot_token is not None
            return Began(row.pk, pool.submit(_carry, row.pk, row.slot_token))

        yield start
        agent_server.let_go()


def _carry(execution_id: uuid.UUID, token: uuid.UUID) -> None:
    try:
        runs.run_execution(execution_id=execution_id, token=token)
    finally:
        connections.close_all()  # the thread goes, and the pool of connections is for all tests


class Began:
    """An execution that is being run."""

    def __init__(self, pk: uuid.UUID, future: "Future[None]") -> None:
        self.pk = pk
        self._future = future

    @property
    def row(self) -> Execution:
        """Its row as it is now."""
        return Execution.objects.get(pk=self.pk)

    def end(self, seconds: float = 30) -> Execution:
        """Its row when its thread is through with it."""
        self._future.result(seconds)
        return self.row


def kinds(pk: uuid.UUID) -> list[str]:
    """The types of its stored events."""
    return list(ExecutionEvent.objects.filter(execution_id=pk).values_list("type", flat=True))


def holders(agent: Agent) -> set[uuid.UUID]:
    """Who has a slot."""
    return {holder.execution_id for holder in slots.state(agent.name).holders}


def cancel(api: Any, execution: Began) -> int:
    """Ask for its cancel as its owner; the answer's status."""
    return api(execution.row.agent.owner).post(f"/api/executions/{execution.pk}/cancel/").status_code


# -- Streams -----------------------------------------------------------------------------------------------------------


def test_events_of_a_stream_can_be_read_while_the_run_goes_on(far: Agent, begin: Any, api: Any, until: Until) -> None:
    run = begin(far, "raw=open-stream")
    events = until(lambda: api(far.owner).get(f"/api/executions/{run.pk}/events/?after=0").json()["results"])
    assert [(event["seq"], event["type"], event["data"]) for event in events] == [(1, "progress", {"step": 1})]
    assert run.row.status == Status.RUNNING
    assert cancel(api, run) == 202
    assert run.end().status == Status.CANCELLED


def test_the_last_result_of_a_stream_is_the_executions(far: Agent, begin: Any) -> None:
    row = begin(far, "raw=two-results").end()
    assert (row.status, row.response) == (Status.SUCCESS, RESULT["response"])
    assert (row.input_tokens, row.output_tokens, float(row.cost_usd or 0)) == (1, 2, 0.25)
    assert kinds(row.pk) == ["note"]


@pytest.mark.flows
def test_events_by_the_ten_thousand_are_cut_off_and_the_result_is_not(far: Agent, begin: Any) -> None:
    row = begin(far, "raw=events").end(60)
    assert (row.status, row.response) == (Status.SUCCESS, "streamed")
    stored = ExecutionEvent.objects.filter(execution_id=row.pk)
    assert (stored.count(), stored.filter(type="progress").count()) == (10_000, 9_999)
    last = stored.latest("seq")
    assert (last.seq, last.type, last.data) == (10_000, "truncated", {"text": "Only the first 9999 events are kept"})


def test_odd_characters_of_events_are_stored_and_read(far: Agent, begin: Any, api: Any) -> None:
    row = begin(far, "raw=nul-and-surrogates").end()
    assert row.status == Status.SUCCESS
    answer = api(far.owner).get(f"/api/executions/{row.pk}/events/?after=0")
    assert [(event["type"], event["data"]) for event in answer.json()["results"]] == [("note", {"k": "ab?c"}), ("text", {"text": 'ab"'})]


# -- Cancels -----------------------------------------------------------------------------------------------------------


def test_a_cancel_of_one_of_three_stops_that_one_alone_at_the_agent_and_frees_its_slot_alone(
    far: Agent, begin: Any, api: Any, agent_server: AgentServer, until: Until
) -> None:
    three = [begin(far, "hang") for _ in range(3)]
    until(lambda: agent_server.active == 3)
    assert cancel(api, three[1]) == 202
    assert three[1].end().status == Status.CANCELLED
    until(lambda: agent_server.ended == [str(three[1].pk)])
    assert agent_server.terminated == [str(three[1].pk)]
    assert holders(far) == {three[0].pk, three[2].pk}
    agent_server.let_go()
    assert [one.end().status for one in (three[0], three[2])] == [Status.SUCCESS] * 2


def test_a_success_reported_after_the_cancel_stays_cancelled(
    far: Agent, begin: Any, api: Any, agent_server: AgentServer, until: Until
) -> None:
    late = begin(far, "hang stubborn")
    until(lambda: agent_server.active == 1)
    assert cancel(api, late) == 202
    assert late.end().status == Status.CANCELLED
    agent_server.let_go()
    until(lambda: agent_server.active == 0)
    assert (late.row.status, late.row.response) == (Status.CANCELLED, None)


def test_a_success_that_overtakes_the_stop_is_cancelled_all_the_same(
    far: Agent, begin: Any, api: Any, agent_server: AgentServer, until: Until
) -> None:
    run = begin(far, "hang")
    until(lambda: agent_server.active == 1)
    assert cancel(api, run) == 202
    agent_server.let_go()
    assert (run.end().status, run.row.response) == (Status.CANCELLED, None)
    assert holders(far) == set()


@pytest.fixture
def process() -> Iterator["subprocess.Popen[str]"]:
    """An HTTP agent in a process of its own, which says where it listens."""
    argv = [sys.executable, "-m", "runtime.demo.server", "--port", "0"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        yield program
        program.kill()


def gone(make_agent: Callable[..., Agent], process: "subprocess.Popen[str]") -> Agent:
    """The agent in that process."""
    assert process.stdout is not None
    return make_agent(runtime={"kind": "http", "url": process.stdout.readline().split()[-1]})


def test_a_cancel_while_the_agents_process_is_killed_is_cancelled_at_once(
    process: "subprocess.Popen[str]", make_agent: Callable[..., Agent], begin: Any, api: Any, until: Until
) -> None:
    agent = gone(make_agent, process)
    run = begin(agent, "work for 60 seconds")
    until(lambda: run.row.started_at)
    assert cancel(api, run) == 202
    process.kill()
    assert run.end().status == Status.CANCELLED
    assert holders(agent) == set()


@pytest.mark.flows
def test_a_cancel_with_the_agent_out_of_reach_is_cancelled_at_the_hard_limit(
    process: "subprocess.Popen[str]",
    make_agent: Callable[..., Agent],
    begin: Any,
    api: Any,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "HARD_LIMIT_SECONDS", 1)
    agent = gone(make_agent, process)
    run = begin(agent, "work for 60 seconds", timeout_seconds=4)
    until(lambda: run.row.started_at)
    process.send_signal(signal.SIGSTOP)
    assert cancel(api, run) == 202
    assert cancel(api, run) == 202
    assert holders(agent) == {run.pk}
    assert run.end().status == Status.CANCELLED
    assert holders(agent) == set()


# -- Time limits -------------------------------------------------------------------------------------------------------


def test_a_run_past_its_limit_is_told_to_end_and_frees_its_slot(far: Agent, begin: Any, agent_server: AgentServer) -> None:
    row = begin(far, "hang", timeout_seconds=1).end()
    assert (row.status, row.error_code, row.error) == (Status.FAILED, "timeout", "Timed out after 1 seconds")
    assert agent_server.terminated == [str(row.pk)]
    assert (row.slot_token, holders(far)) == (None, set())


def test_a_deaf_agents_run_is_timed_out_at_once_and_keeps_its_slot_until_the_agent_hears(
    far: Agent, begin: Any, agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONFIRM_SECONDS", 0.5)
    row = begin(far, "hang deaf=3", timeout_seconds=1).end()
    assert (row.status, row.error_code) == (Status.FAILED, "timeout")
    assert row.error == "Timed out after 1 seconds. The agent did not confirm that its work is over"
    assert holders(far) == {row.pk}
    assert row.slot_token is not None
    for _ in range(3):
        repair.terminate_lost(execution_id=row.pk, token=row.slot_token)
    row.refresh_from_db()
    assert agent_server.active == 0
    assert (row.slot_token, holders(far)) == (None, set())


def test_a_cancel_asked_for_while_a_timed_out_agent_is_told_to_end_decides_the_status(
    far: Agent, begin: Any, api: Any, agent_server: AgentServer, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONFIRM_SECONDS", 60)
    run = begin(far, "hang deaf=1000", timeout_seconds=1)
    until(lambda: agent_server._refusals[str(run.pk)] > 0)
    assert cancel(api, run) == 202
    agent_server.let_go()
    assert (run.end().status, holders(far)) == (Status.CANCELLED, set())


def test_a_result_that_was_told_is_kept_though_a_deaf_agent_does_not_confirm(
    far: Agent, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONFIRM_SECONDS", 0.5)
    row = begin(far, "raw=cut-after-the-result deaf=1000").end()
    assert (row.status, row.response, row.error) == (Status.SUCCESS, "streamed", "")
    assert (row.input_tokens, row.output_tokens) == (RESULT["usage"]["input_tokens"], RESULT["usage"]["output_tokens"])
    assert (holders(far), row.slot_token is not None) == ({row.pk}, True)


# -- The log -----------------------------------------------------------------------------------------------------------


def test_a_flush_stores_a_bounded_number_of_events_and_the_next_goes_on(far: Agent, begin: Any) -> None:
    row = begin(far, "hello").end()
    log = EventLog(row.pk)
    assert all(log.emit("note", {"number": number}) for number in range(1200))
    assert [(log.flush(), len(kinds(row.pk))) for _ in range(4)] == [(True, 500), (True, 1000), (False, 1200), (False, 1200)]


def test_events_stored_by_a_flush_whose_answer_was_lost_are_stored_once(far: Agent, begin: Any) -> None:
    row = begin(far, "hello").end()
    for _ in range(2):
        log = EventLog(row.pk)
        log.emit("note", {})
        assert log.flush() is False
    assert kinds(row.pk) == ["note"]
