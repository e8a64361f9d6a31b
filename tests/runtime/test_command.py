"""Runs of local programs: what they get, what their output means, and that they end when the run does."""

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from core import data_dir
from runtime.demo import agent as demo
from runtime.runtimes import runtime_for
from runtime.runtimes.base import Result, Run, Stop, StopReason
from tests.agents import programs

pytestmark = pytest.mark.flows

Until = Callable[..., Any]
Events = list[tuple[str, dict[str, Any]]]


class Performed:
    """A run in a thread of its own, with its events."""

    def __init__(self, argv: list[str], message: str = "count", *, stop: Stop | None = None, **fields: Any) -> None:
        settings = {"argv": argv} | {name: fields.pop(name) for name in ("cwd", "env") if name in fields}
        defaults = {"execution_id": uuid.uuid4(), "token": uuid.uuid4(), "agent_name": "near", "timeout_seconds": 30}
        self.run = Run(settings=settings, message=message, **(defaults | fields))
        self.mark = f"TRINITY_EXECUTION_ID={self.run.execution_id}"
        self.stop = stop or Stop()
        self.events: Events = []
        self.room = 1000
        self._result: Result | None = None
        self._thread = threading.Thread(target=self._perform, daemon=True)
        self._thread.start()

    def _perform(self) -> None:
        self._result = runtime_for("command").run(self.run, self._take, self.stop)

    def _take(self, kind: str, data: dict[str, Any]) -> bool:
        self.events.append((kind, data))
        return len(self.events) < self.room

    def result(self, seconds: float = 15) -> Result:
        """Its result; nothing of the command lives by then."""
        self._thread.join(seconds)
        assert self._result is not None
        assert programs.living(self.mark) == []
        return self._result


def environment_seen(**fields: Any) -> dict[str, str]:
    """What a program sees of its environment."""
    code = "import json, os\nprint(json.dumps(dict(os.environ)))"
    performed = Performed([sys.executable, "-S", "-c", code], **fields)
    assert performed.result().ok
    return performed.events[0][1]


def test_the_message_is_on_stdin_and_the_text_output_is_the_response() -> None:
    performed = Performed(programs.ECHO, "zwei Wörter\nund mehr\n")
    assert performed.result() == Result(response="zwei Wörter\nund mehr")
    assert performed.events == [("text", {"text": "zwei Wörter\nund mehr"})]


def test_a_message_larger_than_a_pipe_arrives_whole() -> None:
    message = "wört " * 200_000
    assert Performed(programs.ECHO, message).result().response == message


def test_a_program_that_never_reads_its_message_succeeds() -> None:
    assert Performed(["sh", "-c", "exec 0<&-; sleep 0.1; echo done"], "x" * 1_000_000).result() == Result(response="done")


def test_the_request_is_in_a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "of-the-worker")
    session_id = uuid.uuid4()
    given = {"model": "m-1", "system_prompt": "Be\nbrief", "allowed_tools": ["read", "Bash(a, b)"], "max_turns": 7}
    seen = environment_seen(session_id=session_id, env={"TOKEN": "t", "TRINITY_MODEL": "not this one"}, **given)
    assert {name: value for name, value in seen.items() if name.startswith("TRINITY_")} == {
        "TRINITY_EXECUTION_ID": seen["TRINITY_EXECUTION_ID"],
        "TRINITY_SESSION_ID": str(session_id),
        "TRINITY_AGENT": "near",
        "TRINITY_MODEL": "m-1",
        "TRINITY_SYSTEM_PROMPT": "Be\nbrief",
        "TRINITY_ALLOWED_TOOLS": '["read", "Bash(a, b)"]',
        "TRINITY_MAX_TURNS": "7",
    }
    assert seen["TOKEN"] == "t"
    assert seen["PATH"] == os.environ["PATH"]
    assert "SECRET_KEY" not in seen


def test_what_was_not_given_is_empty() -> None:
    seen = environment_seen()
    empty = {name for name, value in seen.items() if name.startswith("TRINITY_") and not value}
    assert empty == {
        "TRINITY_SESSION_ID",
        "TRINITY_MODEL",
        "TRINITY_SYSTEM_PROMPT",
        "TRINITY_ALLOWED_TOOLS",
        "TRINITY_MAX_TURNS",
    }


def test_an_agent_works_in_a_directory_of_its_own(settings: Settings, tmp_path: Path) -> None:
    assert Performed(["pwd"]).result().response == str(data_dir.data_dir() / "agents" / "near")
    settings.TRINITY_AGENT_WORK_DIR = str(tmp_path / "work")
    assert Performed(["pwd"]).result().response == str(tmp_path / "work" / "near")
    assert (tmp_path / "work" / "near").stat().st_mode & 0o777 == 0o700
    assert Performed(["pwd"], cwd="/").result().response == "/"


def test_json_lines_are_events_and_the_last_result_is_the_response() -> None:
    lines = [
        "starting",
        '{"type": "progress", "step": 1}',
        '{"note": "no type"}',
        '{"type": "result", "response": "first"}',
        "[1, 2]",
        '{"type": "result", "response": "last", "usage": {"input_tokens": 3, "output_tokens": 4, "cost_usd": 0.5, "other": 1}}',
    ]
    performed = Performed(programs.ECHO, "\n".join(lines))
    usage = {"input_tokens": 3, "output_tokens": 4, "cost_usd": 0.5}
    assert performed.result() == Result(response="last", usage=usage)
    assert performed.events == [
        ("text", {"text": "starting"}),
        ("progress", {"step": 1}),
        ("message", {"note": "no type"}),
        ("text", {"text": "[1, 2]"}),
    ]


@pytest.mark.parametrize("line", ['{"a": NaN}', '{"a": 1e999}', '{"a": ' + "[" * 5000 + "]" * 5000 + "}", '{"a": ', "{" * 100_000])
def test_what_no_database_takes_as_json_is_text(line: str) -> None:
    performed = Performed(programs.ECHO, line)
    assert performed.result() == Result(response=line)
    assert [kind for kind, _ in performed.events] == ["text"]


def test_output_is_made_fit_for_the_database() -> None:
    code = r"""
import sys
sys.stdout.buffer.write(b'a\0b\xffc\r\n{"type": "result", "response": "d\\u0000e\\ud800f"}\n{"type": "' + b'x' * 99 + b'", "k\\u0000": 1}')
"""
    performed = Performed(programs.python(code))
    assert performed.result() == Result(response="de?f")
    assert performed.events == [("text", {"text": "ab\ufffdc"}), ("x" * 32, {"k": 1})]


def test_a_flood_of_events_is_cut_off_and_the_response_is_not() -> None:
    performed = Performed(["sh", "-c", """yes '{"a": 1}' | head -n 200000; echo '{"type": "result", "response": "done"}'"""])
    assert performed.result(60) == Result(response="done")
    assert performed.events == [("message", {"a": 1})] * performed.room


def test_events_come_while_the_program_works(until: Until) -> None:
    stop = Stop()
    performed = Performed(["sh", "-c", "echo now; sleep 600"], stop=stop)
    until(lambda: performed.events == [("text", {"text": "now"})])
    stop(StopReason.CANCELLED)
    assert performed.result().error_code == "cancelled"


def test_a_status_is_an_agent_error_with_the_end_of_stderr() -> None:
    result = Performed(["sh", "-c", "yes error | head -c 300000 >&2; echo the end >&2; exit 3"]).result()
    assert (result.error_code, len(result.error)) == ("agent_error", 4000)
    assert result.error.endswith("the end")


def test_an_end_without_a_word_is_told_by_its_status() -> None:
    assert Performed(["sh", "-c", "exit 3"]).result().error == "The program exited with status 3"
    assert Performed(["sh", "-c", "kill -9 $$"]).result().error == "The program was ended by SIGKILL"


def test_programs_that_can_not_be_started() -> None:
    missing = Performed(["no-such-program"]).result()
    assert (missing.error_code, missing.error) == (
        "agent_unreachable",
        "The program could not be started: No such file or directory: 'no-such-program'",
    )
    assert Performed(["cat"], cwd="/no/such/directory").result().error_code == "agent_unreachable"
    large = Performed(["cat"], system_prompt="ö" * 100_000).result()
    assert (large.error_code, large.error) == ("agent_error", "The request is too large for a program's environment")


def test_output_past_the_bound_ends_the_program(settings: Settings) -> None:
    settings.TRINITY_MAX_OUTPUT_BYTES = 1_000_000
    for argv in (["yes"], ["sh", "-c", "yes >&2"], ["sh", "-c", "head -c 1000001 /dev/zero; exit 0"]):
        result = Performed(argv).result()
        assert result == Result(error_code="agent_error", error="The agent's output exceeded 1000000 bytes")


def test_output_up_to_the_bound_is_kept(settings: Settings) -> None:
    settings.TRINITY_MAX_OUTPUT_BYTES = 1_000_000
    assert len(Performed(["sh", "-c", "yes | head -c 1000000"]).result().response or "") == 999_999


@pytest.mark.parametrize("argv", [programs.SLEEPER, programs.DEAF, programs.ESCAPEE])
def test_a_run_past_its_limit_ends_with_all_its_processes(argv: list[str]) -> None:
    started = time.monotonic()
    assert Performed(argv, timeout_seconds=1).result() == Result(error_code="timeout", error="Timed out after 1 seconds")
    assert 1 <= time.monotonic() - started < 10


def test_a_cancel_ends_one_of_three_and_only_that(until: Until) -> None:
    three = [Performed(programs.ESCAPEE) for _ in range(3)]
    until(lambda: all(performed.events for performed in three))
    three[1].stop(StopReason.CANCELLED)
    assert three[1].result() == Result(error_code="cancelled", error="Cancelled")
    assert all(programs.living(performed.mark) for performed in (three[0], three[2]))
    for performed in (three[0], three[2]):
        performed.stop(StopReason.SHUTDOWN)
        assert performed.result().error_code == "worker_lost"


def test_a_run_that_is_stopped_before_it_starts_starts_nothing(tmp_path: Path) -> None:
    stopped, late = Stop(), Stop()
    stopped(StopReason.CANCELLED)
    late.extend(time.monotonic() - 1)
    touch = ["touch", str(tmp_path / "started")]
    assert Performed(touch, stop=stopped).result().error_code == "cancelled"
    assert Performed(touch, stop=late).result().error_code == "lease_lost"
    assert not (tmp_path / "started").exists()


def test_a_run_lives_by_the_deadlines_that_are_passed_down() -> None:
    started, stop = time.monotonic(), Stop()
    stop.extend(started + 0.5)
    performed = Performed(programs.SLEEPER, stop=stop)
    stop.extend(started + 1.2)
    assert performed.result().error_code == "lease_lost"
    assert time.monotonic() - started >= 1.2


def test_a_failing_listener_leaves_no_program() -> None:
    def refuse(kind: str, data: dict[str, Any]) -> None:
        raise ConnectionError("no database")

    performed = Performed(["true"])
    performed.result()
    run = replace(performed.run, settings={"argv": ["sh", "-c", "echo now; sleep 600"]})
    with pytest.raises(ConnectionError):
        runtime_for("command").run(run, refuse, Stop())
    assert programs.living(performed.mark) == []


def test_a_hundred_runs_at_once_keep_their_output_apart() -> None:
    many = [Performed(["sh", "-c", f"cat; echo {number}"], f"message {number}:") for number in range(100)]
    assert [performed.result(30).response for performed in many] == [f"message {number}:{number}" for number in range(100)]


def test_the_demo_agent_reports_and_can_be_interrupted(until: Until) -> None:
    argv = [sys.executable, demo.__file__]
    short = Performed(argv, "two words, work for 1 second")
    result = short.result()
    assert (result.response or "").startswith("5 words")
    assert result.usage is not None
    assert [kind for kind, _ in short.events] == ["progress", "progress"]
    assert Performed(argv, "fail please").result().error == "Failed as told: fail please"
    long = Performed(argv, "sleep 600")
    until(lambda: long.events)
    long.stop(StopReason.CANCELLED)
    assert long.result().error_code == "cancelled"
    assert long.events[-1] == ("message", {"text": "Interrupted, leaving."})


def test_a_lost_command_is_known_to_be_over() -> None:
    assert runtime_for("command").cancel(Performed(["true"]).run) is True
