"""HTTP agents that break the contract: each run ends with the right error, on time, and at nobody else's cost."""

import itertools
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from core import data_dir
from runtime.runtimes import http, runtime_for
from runtime.runtimes.base import Result, Run, Stop, StopReason
from tests.agents import hostile
from tests.agents.server import AgentServer

pytestmark = pytest.mark.flows

ROOT = Path(__file__).parents[2]
MEBIBYTE = 1024 * 1024
Until = Callable[..., Any]

NEVER_END = [
    "silence", "head-only", "half-body", "open-stream", "result-and-open", "dribbled-head", "dribbled-body", "dribbled-stream",
]  # fmt: skip
BROKEN = [
    "nothing", "cut-head", "cut-body", "cut-line", "bad-chunk-size", "bad-chunk-end", "two-lengths", "endless-head", "not-http",
]  # fmt: skip
NO_RESULT = ["cut-line-at-the-end", "cut-before-the-result", "empty-stream"]
NO_OBJECT = ["no-json", "no-body", "a-list", "a-text", "null", "many-values"]
FLOODS = [name for name in hostile.ANSWERS if name.startswith("flood") and name != "flood-of-refusal"]


class Call:
    """One run at the agent, with the events that it passed on."""

    def __init__(self, server: AgentServer, message: str, *, stop: Stop | None = None, **fields: Any) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.stop = stop or Stop()
        ids = {"execution_id": uuid.uuid4(), "token": uuid.uuid4()}
        self.run = Run(settings={"url": server.url}, message=message, agent_name="far", **({"timeout_seconds": 30} | ids | fields))

    def make(self) -> Result:
        """The outcome."""
        return runtime_for("http").run(self.run, self._take, self.stop)

    def _take(self, kind: str, data: dict[str, Any]) -> bool:
        self.events.append((kind, data))
        return len(self.events) < 100


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as executor:
        yield executor


def outcomes(pool: ThreadPoolExecutor, server: AgentServer, names: list[str], **fields: Any) -> dict[str, Result]:
    """The outcome of each of these answers, all asked for at once."""
    calls = {name: Call(server, f"raw={name}", **fields) for name in names}
    results = dict(zip(calls, pool.map(Call.make, calls.values()), strict=True))
    assert len(server.started) == len(names), "nothing is sent twice"
    return results


def test_an_agent_that_never_ends_its_answer_times_out_and_is_told_to_end(agent_server: AgentServer, pool: ThreadPoolExecutor) -> None:
    results = outcomes(pool, agent_server, NEVER_END, timeout_seconds=1)
    assert results == dict.fromkeys(NEVER_END, Result(error_code="timeout", error="Timed out after 1 seconds"))
    assert sorted(agent_server.terminated) == sorted(agent_server.started)


def test_an_answer_that_breaks_off_is_an_agent_error_and_the_agent_is_told_to_end(
    agent_server: AgentServer, pool: ThreadPoolExecutor
) -> None:
    results = outcomes(pool, agent_server, BROKEN)
    assert {name: (result.error_code, result.over) for name, result in results.items()} == dict.fromkeys(BROKEN, ("agent_error", True))
    assert all(result.error.startswith("The connection broke before the answer was complete: ") for result in results.values())
    assert sorted(agent_server.terminated) == sorted(agent_server.started)


def test_an_answer_that_leaves_the_work_going_on_has_the_agent_told_to_end(
    agent_server: AgentServer, pool: ThreadPoolExecutor, until: Until
) -> None:
    results = outcomes(pool, agent_server, ["gateway", "other-gateway", "accepted"])
    assert {name: (result.error_code, result.over) for name, result in results.items()} == {
        "gateway": ("timeout", True),
        "other-gateway": ("timeout", True),
        "accepted": ("agent_error", True),
    }
    assert sorted(agent_server.terminated) == sorted(agent_server.started)
    until(lambda: agent_server.active == 0)


def test_a_slot_waits_for_the_agent_behind_a_gateway_that_gave_up(agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONFIRM_SECONDS", 0.5)
    result = Call(agent_server, "raw=gateway deaf=100").make()
    assert (result.error_code, result.over) == ("timeout", False)
    assert agent_server.active == 1


def test_a_stream_without_a_result_is_an_agent_error_and_the_agent_is_told_to_end(
    agent_server: AgentServer, pool: ThreadPoolExecutor
) -> None:
    results = outcomes(pool, agent_server, NO_RESULT)
    assert results == dict.fromkeys(NO_RESULT, Result(error_code="agent_error", error="The agent's stream ended without a result"))
    assert sorted(agent_server.terminated) == sorted(agent_server.started)


def test_a_result_stands_though_the_connection_breaks_after_it(agent_server: AgentServer) -> None:
    call = Call(agent_server, "raw=cut-after-the-result")
    assert call.make().response == "streamed"
    assert agent_server.terminated == [str(call.run.execution_id)]


def test_an_answer_that_is_no_object_is_an_agent_error(agent_server: AgentServer, pool: ThreadPoolExecutor) -> None:
    results = outcomes(pool, agent_server, NO_OBJECT)
    assert results == dict.fromkeys(NO_OBJECT, Result(error_code="agent_error", error="The agent's answer is not a JSON object"))


def test_an_answer_without_a_text_as_response_is_an_agent_error(agent_server: AgentServer, pool: ThreadPoolExecutor) -> None:
    names = ["no-response", "number-as-response"]
    results = outcomes(pool, agent_server, names)
    assert results == dict.fromkeys(names, Result(error_code="agent_error", error="The agent's answer has no response"))


def test_a_failure_that_the_agent_reports_is_its_error(agent_server: AgentServer, pool: ThreadPoolExecutor) -> None:
    names = ["failed", "failed-stream"]
    assert outcomes(pool, agent_server, names) == dict.fromkeys(names, Result(error_code="agent_error", error="Out of tokens"))


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("half-a-character-in-a-line", ("note", {"text": "caf\ufffd"})),
        ("a-character-in-two-chunks", ("note", {"text": "café"})),
        ("nul-and-surrogates", ("note", {"k": "ab?c"})),
        ("nan", ("text", {"text": '{"type": "note", "value": NaN}'})),
        ("no-last-newline", ("note", {"text": "a"})),
        ("windows-lines", ("note", {"text": "a"})),
    ],
)
def test_events_are_made_fit_for_the_database(agent_server: AgentServer, name: str, event: tuple[str, dict[str, Any]]) -> None:
    call = Call(agent_server, f"raw={name}")
    assert call.make().response == "streamed"
    assert call.events[0] == event


def test_what_is_nested_past_reason_is_text(agent_server: AgentServer) -> None:
    for name in ("deep", "many-values-in-a-line"):
        call = Call(agent_server, f"raw={name}")
        assert call.make().response == "streamed"
        assert [kind for kind, _ in call.events] == ["text"]


def test_half_a_character_in_an_answer_is_replaced(agent_server: AgentServer) -> None:
    assert Call(agent_server, "raw=half-a-character").make().response == "caf\ufffd"


def test_a_redirect_is_followed_nowhere(agent_server: AgentServer) -> None:
    with AgentServer() as elsewhere:
        result = Call(agent_server, f"to={elsewhere.url}/api/task").make()
        assert (result.error_code, result.error) == ("agent_error", "The agent answered 302: {}")
        assert elsewhere.calls == []


def test_a_refusal_that_is_never_finished_is_taken_as_it_is(agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REFUSAL_SECONDS", 0.5)
    result = Call(agent_server, "raw=dribbled-refusal").make()
    assert result.error_code == "agent_error"
    assert result.error.startswith("The agent answered 500: broken")
    assert agent_server.terminated == []


def test_a_packed_answer_is_not_unpacked(agent_server: AgentServer) -> None:
    assert Call(agent_server, "raw=packed").make().error == "The agent's answer is compressed, which it was not asked to be"


def test_an_answer_to_a_terminate_that_never_ends_confirms_nothing(agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONFIRM_SECONDS", 1.0)
    monkeypatch.setattr(http, "TERMINATE_SECONDS", 0.4)
    began = time.monotonic()
    result = Call(agent_server, "hang mumbles", timeout_seconds=1).make()
    assert time.monotonic() - began < 10
    assert (result.error_code, result.over) == ("timeout", False)
    assert result.error == "Timed out after 1 seconds. The agent did not confirm that its work is over"


def test_two_hundred_megabytes_are_cut_off_whatever_their_shape(agent_server: AgentServer) -> None:
    """In a process of its own, whose most memory is known to the byte."""
    bounded = [*FLOODS, "flood-of-refusal", "packed", "many-values", "many-values-in-a-line", "events"]
    env = {"TRINITY_DATA_DIR": str(data_dir.data_dir()), "PYTHONPATH": str(ROOT)}
    arguments = [agent_server.url, *(f"raw={name}" for name in bounded)]
    told = subprocess.run([sys.executable, "-m", "tests.agents.caller", *arguments], cwd=ROOT, env=env, capture_output=True, check=True)
    calls = dict(zip(bounded, map(json.loads, told.stdout.splitlines()), strict=True))
    assert {calls[name]["error"] for name in FLOODS} == {f"The agent's answer exceeded {10 * MEBIBYTE} bytes"}
    assert {calls[name]["error_code"] for name in FLOODS} == {"agent_error"}
    assert calls["flood-of-refusal"]["error"].startswith("The agent answered 500: xxx")
    growth = {name: call["growth"] for name, call in calls.items()}
    assert sum(growth.values()) < 120 * MEBIBYTE, growth


def test_agents_that_talk_without_end_do_not_hold_up_the_others(
    agent_server: AgentServer, pool: ThreadPoolExecutor, settings: Settings, until: Until, record_property: Callable[[str, object], None]
) -> None:
    settings.TRINITY_MAX_OUTPUT_BYTES = 10**12
    storms = [Call(agent_server, "raw=storm", timeout_seconds=60) for _ in range(2)]
    stormy = [pool.submit(storm.make) for storm in storms]
    until(lambda: all(len(storm.events) >= 100 for storm in storms))
    began = time.monotonic()
    assert all(pool.map(lambda call: call.make().ok, [Call(agent_server, f"task {number}") for number in range(30)]))
    record_property("thirty_calls_seconds", round(time.monotonic() - began, 3))
    assert agent_server.active == 2, "they go on"
    for storm in storms:
        storm.stop(StopReason.CANCELLED)
    assert [storm.result(20).error_code for storm in stormy] == ["cancelled"] * 2


def test_a_listener_that_fails_leaves_no_call(agent_server: AgentServer, until: Until) -> None:
    def fail(kind: str, data: dict[str, Any]) -> bool:
        raise RuntimeError("no room")

    call = Call(agent_server, "raw=open-stream")
    with pytest.raises(RuntimeError, match="no room"):
        runtime_for("http").run(call.run, fail, Stop())
    assert agent_server.terminated == [str(call.run.execution_id)]
    until(lambda: agent_server.active == 0)


def test_every_answer_is_asked_for_here() -> None:
    source = Path(__file__).read_text()
    named = set(itertools.chain(FLOODS, (name for name in hostile.ANSWERS if f'"{name}"' in source or f"raw={name}" in source)))
    elsewhere = (Path(__file__).parent / "test_http_runs.py").read_text()
    assert {name for name in hostile.ANSWERS if name not in named and f"raw={name}" not in elsewhere} == set()
