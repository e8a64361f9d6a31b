"""No command outlives its worker, its deadline or its run, whatever becomes of the worker and whatever the command does."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runtime.supervisor import client
from tests.agents import programs

pytestmark = pytest.mark.flows

ROOT = Path(__file__).parents[2]
Until = Callable[..., Any]
Carry = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark of this test's own; at its end nothing that bears it lives."""
    mark = f"TRINITY_EXECUTION_ID={uuid.uuid4()}"
    yield mark
    left = programs.living(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


@pytest.fixture
def start(mark: str) -> Iterator[Callable[..., client.Command]]:
    """Starts commands of this process that bear the mark."""
    name, _, value = mark.partition("=")
    commands = []

    def begin(argv: list[str], **options: Any) -> client.Command:
        env = {"PATH": os.environ["PATH"], name: value} | options.pop("env", {})
        command = client.start(**{"argv": argv, "cwd": "/", "env": env, "mark": mark} | options)
        commands.append(command)
        return command

    yield begin
    for command in commands:
        command.close()


@pytest.fixture
def carry(mark: str) -> Iterator[Carry]:
    """Starts a worker process that carries commands: `carry(argv, count=1, seconds=0)`; returns when they run."""
    with contextlib.ExitStack() as stack:

        def begin(argv: list[str], *, count: int = 1, seconds: float = 0) -> subprocess.Popen[str]:
            line = [sys.executable, "-m", "tests.agents.carrier", mark, str(count), str(seconds), *argv]
            process = subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            return process

        yield begin


def ended(command: client.Command, seconds: float = 10) -> client.Ended:
    """How it ended."""
    assert command.wait(seconds)
    assert command.ended is not None
    return command.ended


@pytest.mark.parametrize("argv", [programs.SLEEPER, programs.DEAF, programs.ESCAPEE])
def test_a_killed_worker_leaves_no_command(
    carry: Carry, mark: str, until: Until, argv: list[str], record_property: Callable[[str, object], None]
) -> None:
    worker = carry(argv, count=8)
    until(lambda: len(programs.living(mark)) >= 8)
    worker.kill()
    killed_at = time.monotonic()
    until(lambda: not programs.living(mark))
    record_property("dead_after_seconds", round(time.monotonic() - killed_at, 3))


def test_a_frozen_workers_commands_die_at_their_deadline(carry: Carry, mark: str, until: Until) -> None:
    worker = carry(programs.ESCAPEE, count=4, seconds=3)
    until(lambda: len(programs.living(mark)) >= 4)
    worker.send_signal(signal.SIGSTOP)
    until(lambda: not programs.living(mark))
    worker.send_signal(signal.SIGCONT)
    output, _ = worker.communicate("\n", timeout=10)
    assert output == "['deadline', 'deadline', 'deadline', 'deadline']\n"


def test_a_worker_that_leaves_takes_its_commands_along(carry: Carry, mark: str) -> None:
    worker = carry(programs.DEAF, count=3)
    worker.communicate("\n", timeout=10)
    assert worker.returncode == 0
    assert programs.living(mark) == []


def test_an_extended_command_lives_until_its_last_deadline(start: Callable[..., client.Command]) -> None:
    began = time.monotonic()
    command = start(programs.SLEEPER, deadline=began + 0.5)
    command.extend(began + 1.2)
    assert ended(command) == client.Ended(status=-signal.SIGKILL, by="deadline")
    assert time.monotonic() - began >= 1.2


def test_a_command_without_a_deadline_gets_one_and_loses_it_again(start: Callable[..., client.Command]) -> None:
    command = start(["sleep", "0.6"])
    command.extend(time.monotonic() + 0.2)
    command.extend(float("inf"))
    assert ended(command) == client.Ended(status=0, by="")


def test_one_that_ignores_every_polite_signal_is_killed_with_its_children(
    start: Callable[..., client.Command], mark: str, until: Until
) -> None:
    command = start(programs.DEAF)
    until(lambda: len(programs.living(mark)) >= 3)
    command.end()
    assert ended(command) == client.Ended(status=-signal.SIGKILL, by="asked")
    assert programs.living(mark) == []


def test_one_that_obeys_an_interrupt_ends_by_itself(start: Callable[..., client.Command], until: Until) -> None:
    code = "import signal, sys, time\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(7))\nprint('up', flush=True)\ntime.sleep(600)"
    command = start(programs.python(code))
    until(lambda: _peek(command) == b"up\n")
    command.end()
    assert ended(command) == client.Ended(status=7, by="asked")


def test_what_escaped_from_the_group_ends_with_the_run(start: Callable[..., client.Command], mark: str, until: Until) -> None:
    command = start(programs.ESCAPEE)
    until(lambda: len(programs.living(mark)) >= 4)
    command.kill()
    ended(command)
    assert programs.living(mark) == []


def test_what_a_command_leaves_behind_ends_with_it(start: Callable[..., client.Command], mark: str) -> None:
    command = start(programs.DESERTER)
    assert ended(command) == client.Ended(status=0, by="")
    assert programs.living(mark) == []


def test_an_escapee_of_a_run_that_goes_on_is_left_alone(start: Callable[..., client.Command], mark: str, until: Until) -> None:
    start(programs.ESCAPEE)
    until(lambda: len(programs.living(mark)) >= 4)
    before = programs.living(mark)
    ended(start(["true"], mark="OTHER=1", env={"TRINITY_EXECUTION_ID": "other"}))
    assert programs.living(mark) == before


def test_an_escapee_that_hides_its_origin_is_ended_too(start: Callable[..., client.Command], until: Until) -> None:
    hidden = f"HIDDEN={uuid.uuid4()}"
    command = start(["sh", "-c", f"env -i {hidden} PATH=/usr/bin:/bin setsid sleep 600 & sleep 600"])
    until(lambda: programs.living(hidden))
    command.kill()
    ended(command)
    assert programs.living(hidden) == []


def test_a_hundred_at_once_all_start_and_all_end(start: Callable[..., client.Command]) -> None:
    with ThreadPoolExecutor(100) as pool:
        commands = list(pool.map(lambda number: start(["sh", "-c", f"exit {number}"]), range(100)))
        assert [ended(command).status for command in commands] == list(range(100))


def test_one_that_can_not_be_started_harms_no_other(start: Callable[..., client.Command], tmp_path: Path) -> None:
    other = start(["sleep", "0.5"])
    script = tmp_path / "script"
    script.write_text("no program")
    impossible: list[dict[str, Any]] = [
        {"argv": ["no-such-program"]},
        {"argv": ["cat"], "cwd": "/no/such/directory"},
        {"argv": [str(script)]},
        {"argv": []},
        {"argv": ["a\0b"]},
        {"argv": ["cat"], "env": {"A=B": "c"}},
        {"argv": ["cat"], "env": {"LONG": "x" * 200_000}},
    ]
    for arguments in impossible:
        with pytest.raises(client.NotStarted):
            start(**arguments)
    assert ended(other) == client.Ended(status=0, by="")


def test_descriptors_are_given_back(start: Callable[..., client.Command]) -> None:
    start(["true"]).close()
    before = open_descriptors()
    for _ in range(20):
        command = start(["true"])
        ended(command)
        command.close()
    with pytest.raises(client.NotStarted):
        start(["no-such-program"])
    assert open_descriptors() == before


def test_the_worker_gets_a_new_supervisor_for_one_that_was_killed(start: Callable[..., client.Command], mark: str, until: Until) -> None:
    command = start(programs.DEAF)
    until(lambda: len(programs.living(mark)) >= 2)
    first = client.link()
    first.process.kill()
    assert ended(command) == client.Ended(status=-signal.SIGKILL, by="lost")
    assert programs.living(mark) == []
    assert ended(start(["true"])) == client.Ended(status=0, by="")
    assert client.link() is not first


def test_a_supervisor_ignores_the_signals_that_end_its_worker(start: Callable[..., client.Command]) -> None:
    command = start(["sleep", "0.5"])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        client.link().process.send_signal(number)
    assert ended(command) == client.Ended(status=0, by="")


def test_commands_have_default_signals(start: Callable[..., client.Command], until: Until) -> None:
    code = "import signal\nprint([n for n in (1, 2, 13, 15, 17) if signal.getsignal(n) is signal.SIG_IGN], signal.pthread_sigmask(0, []))"
    command = start([sys.executable, "-S", "-c", code])
    # Python itself ignores SIGPIPE (13).
    assert ended(command).status == 0
    assert _peek(command) == b"[13] set()\n"


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_supervisor_of_its_own(start: Callable[..., client.Command], mark: str, until: Until) -> None:
    start(programs.SLEEPER)
    before = programs.living(mark)
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = ended(start(["sh", "-c", "exit 5"])).status
        client.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert programs.living(mark) == before


def open_descriptors() -> int:
    """How many this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def _peek(command: client.Command) -> bytes | None:
    try:
        return os.read(command.stdout, 1000)
    except BlockingIOError:
        return None
