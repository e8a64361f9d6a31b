"""Runs at a real HTTP agent: what it gets, what its answers mean, and that its work is over when the run is."""

import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from runtime.demo.server import DemoServer
from runtime.runtimes import contract, http, runtime_for
from runtime.runtimes.addresses import is_public
from runtime.runtimes.base import Result, Run, Stop, StopReason
from tests.agents.server import USAGE, AgentServer

pytestmark = pytest.mark.flows

ROOT = Path(__file__).parents[2]
Until = Callable[..., Any]


def run_of(url: str, message: str = "count", **fields: Any) -> Run:
    headers = fields.pop("headers", {})
    defaults = {"execution_id": uuid.uuid4(), "token": uuid.uuid4(), "agent_name": "far", "timeout_seconds": 30}
    return Run(settings={"url": url, "headers": headers}, message=message, **(defaults | fields))


def perform(run: Run, stop: Stop | None = None) -> Result:
    return runtime_for("http").run(run, lambda kind, data: True, stop or Stop())


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as executor:
        yield executor


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is bound, so that nobody else takes it, and at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_the_answer_is_the_response_and_its_metadata_the_usage(agent_server: AgentServer) -> None:
    assert perform(run_of(agent_server.url, "count the words")) == Result(response="done: count the words", usage=USAGE)


def test_every_field_and_the_agents_headers_reach_the_agent(agent_server: AgentServer) -> None:
    session_id = uuid.uuid4()
    given = {"model": "m-1", "system_prompt": "Be brief", "allowed_tools": ["read", "grep"], "max_turns": 7, "metadata": {"a": [1]}}
    run = run_of(agent_server.url + "/", session_id=session_id, headers={"X-Key": "k"}, **given)
    perform(run)
    ids = {"execution_id": str(run.execution_id), "session_id": str(session_id)}
    assert agent_server.bodies == [{"message": "count", "timeout_seconds": 30} | given | ids]
    assert agent_server.calls[0].headers["X-Key"] == "k"


def test_fields_that_were_not_given_are_null(agent_server: AgentServer) -> None:
    perform(run_of(agent_server.url))
    empty = {name for name, value in agent_server.bodies[0].items() if value is None}
    assert empty == {"model", "system_prompt", "allowed_tools", "max_turns", "session_id"}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("status=401", "agent_auth"),
        ("status=403", "agent_auth"),
        ("status=503 auth", "agent_auth"),
        ("status=503", "agent_error"),
        ("status=429", "agent_rate_limited"),
        ("status=504", "timeout"),
        ("status=500", "agent_error"),
        ("status=302", "agent_error"),
        ("status=204", "agent_error"),
    ],
)
def test_a_status_becomes_its_error_code(agent_server: AgentServer, message: str, code: str) -> None:
    result = perform(run_of(agent_server.url, message))
    assert (result.error_code, result.response) == (code, None)
    assert result.error.startswith(f"The agent answered {message[7:10]}")
    assert len(agent_server.started) == 1


def test_an_answer_that_is_no_json_is_an_agent_error(agent_server: AgentServer) -> None:
    assert perform(run_of(agent_server.url, "garbage")) == Result(error_code="agent_error", error="The agent's answer is not a JSON object")


def test_an_answer_without_a_response_is_an_agent_error() -> None:
    for body in (b"{}", b'{"response": null}', b'{"response": 5}'):
        assert contract.outcome_of(contract.Answer(200, body)).error == "The agent's answer has no response"


def test_an_answer_is_made_fit_for_the_database() -> None:
    body = b'{"response": "a\\u0000b\\ud800c", "metadata": {"cost_usd": -1, "input_tokens": true}}'
    assert contract.outcome_of(contract.Answer(200, body)) == Result(response="ab?c", usage=None)


def test_an_answer_past_the_bound_is_cut_off(agent_server: AgentServer, settings: Settings) -> None:
    settings.TRINITY_MAX_OUTPUT_BYTES = 100_000
    result = perform(run_of(agent_server.url, "size=20000000"))
    assert result == Result(error_code="agent_error", error="The agent's answer exceeded 100000 bytes")


def test_a_connection_cut_in_mid_answer_is_an_agent_error_and_the_agent_is_asked(agent_server: AgentServer) -> None:
    run = run_of(agent_server.url, "cut")
    assert perform(run).error_code == "agent_error"
    assert agent_server.terminated == [str(run.execution_id)]
    assert len(agent_server.started) == 1


def test_a_closed_port_is_unreachable_after_four_attempts(closed_port: int) -> None:
    started = time.monotonic()
    result = perform(run_of(f"http://127.0.0.1:{closed_port}"))
    assert result.error_code == "agent_unreachable"
    assert time.monotonic() - started > 3 * 0.2


def test_an_agent_that_comes_up_meanwhile_gets_the_task_once(pool: ThreadPoolExecutor, closed_port: int) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        outcome = pool.submit(perform, run_of(f"http://127.0.0.1:{port}"))
        threading.Event().wait(0.1)
    with AgentServer(port) as server:
        assert outcome.result(10).ok
        assert len(server.started) == 1


def test_urls_that_are_none_are_unreachable() -> None:
    for url in ("http://", "ftp://127.0.0.1/", "http://[::1", "nonsense"):
        assert perform(run_of(url)).error_code == "agent_unreachable"


def test_a_header_that_can_not_be_sent_ends_the_run_at_once(agent_server: AgentServer) -> None:
    assert perform(run_of(agent_server.url, headers={"X-A": "b\r\nc: d"})).error_code == "agent_unreachable"
    assert agent_server.started == []


def test_a_run_past_its_limit_is_terminated(agent_server: AgentServer) -> None:
    run = run_of(agent_server.url, "hang", timeout_seconds=1)
    started = time.monotonic()
    assert perform(run) == Result(error_code="timeout", error="Timed out after 1 seconds")
    assert 1 <= time.monotonic() - started < 5
    assert agent_server.terminated == [str(run.execution_id)]


def test_a_cancelled_run_ends_at_once_and_alone(agent_server: AgentServer, pool: ThreadPoolExecutor, until: Until) -> None:
    stops = [Stop() for _ in range(3)]
    runs = [run_of(agent_server.url, "hang") for _ in stops]
    outcomes = [pool.submit(perform, run, stop) for run, stop in zip(runs, stops, strict=True)]
    until(lambda: agent_server.active == 3)
    stops[1](StopReason.CANCELLED)
    assert outcomes[1].result(5).error_code == "cancelled"
    until(lambda: agent_server.active == 2)
    assert agent_server.ended == [str(runs[1].execution_id)]
    agent_server.let_go()
    assert outcomes[0].result(5).ok
    assert outcomes[2].result(5).ok


def test_an_agent_that_does_not_confirm_is_asked_again(agent_server: AgentServer, pool: ThreadPoolExecutor, until: Until) -> None:
    stop = Stop()
    outcome = pool.submit(perform, run_of(agent_server.url, "hang deaf=3"), stop)
    until(lambda: agent_server.active == 1)
    stop(StopReason.CANCELLED)
    assert outcome.result(10).error_code == "cancelled"
    until(lambda: agent_server.active == 0)


def test_an_answer_to_the_call_proves_that_a_deaf_agent_is_done(agent_server: AgentServer, pool: ThreadPoolExecutor, until: Until) -> None:
    stop = Stop()
    outcome = pool.submit(perform, run_of(agent_server.url, "sleep=1.5 deaf=1000"), stop)
    until(lambda: agent_server.active == 1)
    stop(StopReason.CANCELLED)
    assert outcome.result(10).error_code == "cancelled"
    assert agent_server.active == 0
    assert agent_server.terminated == []


def test_a_run_whose_agent_never_confirms_ends_at_the_hard_limit(
    agent_server: AgentServer, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "HARD_LIMIT_SECONDS", 1)
    result = perform(run_of(agent_server.url, "hang deaf=1000", timeout_seconds=1))
    assert result.error_code == "timeout"
    assert result.error == "Timed out after 1 seconds. The agent did not confirm that its work is over"


def test_an_agent_that_dies_under_its_work_does_not_hold_the_run(pool: ThreadPoolExecutor) -> None:
    program = subprocess.Popen([sys.executable, "-m", "runtime.demo.server", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    with program, program.stdout:
        url = program.stdout.readline().split()[-1]
        outcome = pool.submit(perform, run_of(url, "sleep 60"))
        with pytest.raises(TimeoutError):
            outcome.result(0.5)
        program.kill()
        assert outcome.result(10).error_code == "agent_error"


def test_nothing_is_sent_without_a_lease_or_once_stopped(agent_server: AgentServer) -> None:
    late, stopped = Stop(), Stop()
    late.extend(time.monotonic() - 1)
    stopped(StopReason.CANCELLED)
    assert perform(run_of(agent_server.url), late).error_code == "lease_lost"
    assert perform(run_of(agent_server.url), stopped).error_code == "cancelled"
    assert agent_server.started == []


def test_a_stop_while_connecting_sends_nothing(closed_port: int, pool: ThreadPoolExecutor) -> None:
    stop = Stop()
    outcome = pool.submit(perform, run_of(f"http://127.0.0.1:{closed_port}"), stop)
    stop(StopReason.CANCELLED)
    assert outcome.result(5).error_code == "cancelled"


def test_cancel_asks_the_agent_and_the_id_is_refused_afterwards(agent_server: AgentServer, closed_port: int) -> None:
    run = run_of(agent_server.url)
    assert runtime_for("http").cancel(run) is True
    assert perform(run).error == "The agent answered 409: This execution was terminated"
    assert agent_server.started == []
    assert runtime_for("http").cancel(run_of(f"http://127.0.0.1:{closed_port}")) is False


def test_private_addresses_are_refused_where_they_are_not_allowed(agent_server: AgentServer, settings: Settings) -> None:
    settings.TRINITY_ALLOW_PRIVATE_ADDRESSES = False
    port = agent_server.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost"):
        result = perform(run_of(f"http://{host}:{port}"))
        assert result.error_code == "agent_unreachable"
        assert result.error.endswith("The agent's address is private, and private addresses are not allowed")
    assert agent_server.started == []


def test_which_addresses_are_public() -> None:
    private = ("10.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "224.0.0.1", "100.64.0.1", "fe80::1%eth0")
    assert not any(is_public(address) for address in private)
    assert is_public("8.8.8.8")
    assert is_public("2606:4700::1111")


def test_calls_wait_at_the_agent_all_at_once(agent_server: AgentServer, pool: ThreadPoolExecutor, until: Until) -> None:
    outcomes = [pool.submit(perform, run_of(agent_server.url, "hang")) for _ in range(40)]
    until(lambda: agent_server.active == 40)
    agent_server.let_go()
    assert all(outcome.result(10).ok for outcome in outcomes)
    assert agent_server.peak == 40


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_makes_a_loop_of_its_own(agent_server: AgentServer) -> None:
    assert perform(run_of(agent_server.url)).ok
    pid = os.fork()
    if pid == 0:
        os._exit(0 if perform(run_of(agent_server.url)).ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_the_demo_agent_works_and_can_be_terminated(pool: ThreadPoolExecutor, until: Until) -> None:
    with DemoServer(("127.0.0.1", 0)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert (perform(run_of(server.url, "two words")).response or "").startswith("2 words")
        assert perform(run_of(server.url, "fail please")).error_code == "agent_error"
        stop = Stop()
        outcome = pool.submit(perform, run_of(server.url, "work for 60 seconds"), stop)
        until(lambda: server.running == 1)
        stop(StopReason.CANCELLED)
        assert outcome.result(5).error_code == "cancelled"
        until(lambda: server.running == 0)
        server.shutdown()
