"""A supervisor for a handful of programs that make one foreground command.

Each child has its own session, so that Ctrl-C reaches this process alone and the order of the end is ours to choose.
One that dies is started again, after a pause that doubles while it keeps dying. `core.tether` sees to it that none
outlives this process. One thread only: the kernel ties a child to the thread that started it.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import BinaryIO, TextIO, cast

from .logs import legible
from .tether import tethered

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
#: One that ran this long is taken to be well again.
WELL_SECONDS = 10.0
MAX_LOG_BYTES = 10 * 1024 * 1024
#: A line without an end must not grow in our memory.
MAX_LINE_BYTES = 65_536
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal asks for the end. Not an `Exception`: nothing on the way may take it for a fault."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run. `last` ones are ended after all others; what a `private` one says goes to its starter alone."""

    name: str
    argv: list[str]
    env: Mapping[str, str]
    last: bool = False
    private: bool = False


class _Log:
    """One program's output, line by line: to a file of bounded size and, with the program's name, to the terminal."""

    def __init__(self, *, path: Path | None, show: Callable[[str], None]) -> None:
        self._path = path
        self._show = show
        self._rest = b""
        self._file = path.open("ab") if path else None

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._show(line.decode(errors="replace").rstrip("\r"))
        if self._file and self._path:
            self._file.write(b"".join(line + b"\n" for line in lines))
            self._file.flush()
            if self._file.tell() > MAX_LOG_BYTES:
                self._file.close()
                self._path.replace(self._path.with_suffix(".log.1"))
                self._file = self._path.open("ab")

    def close(self) -> None:
        if self._rest:
            self.write(b"\n")
        if self._file:
            self._file.close()


class _Child:
    """A program and its process of the moment."""

    def __init__(self, *, program: Program, log: _Log, said: list[str], once: bool) -> None:
        self.program = program
        self.log = log
        self.said = said
        self.once = once
        self.pause = FIRST_PAUSE_SECONDS
        self.spawn()

    def spawn(self) -> None:
        self.started_at = time.monotonic()
        self.due_at: float | None = None
        self.process = subprocess.Popen(
            tethered(self.program.argv),
            env=dict(self.program.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pipe = cast("BinaryIO", self.process.stdout)
        os.set_blocking(self.pipe.fileno(), False)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class ProcessTree:
    """Starts programs, keeps them running, ends them. Use it as `with tree.until_signalled(): …`, from the main thread."""

    def __init__(self, *, log_dir: Path, terminal: TextIO, grace_seconds: float) -> None:
        """`grace_seconds` is what the children have between SIGTERM and SIGKILL."""
        log_dir.mkdir(parents=True, exist_ok=True)
        self._log_dir = log_dir
        self._terminal: TextIO | None = terminal
        self._grace_seconds = grace_seconds
        self._children: list[_Child] = []
        self._selector = selectors.DefaultSelector()
        self._ending = False
        self._hurry = False

    # -- Use ---------------------------------------------------------------------------------------------------------
    @contextmanager
    def until_signalled(self) -> Iterator[None]:
        """The body runs until it ends or a signal ends it; either way nothing that was started runs afterwards."""
        former = {number: signal.signal(number, self._signalled) for number in _ENDING_SIGNALS}
        try:
            yield
        except Ended:
            self.say("Stopping. Press Ctrl-C again to stop at once.")
        finally:
            self._ending = True
            self._end()
            for number, handler in former.items():
                signal.signal(number, handler)

    def start(self, program: Program) -> None:
        """Start `program` and keep it running from now on."""
        self._adopt(program, once=False)

    def run_once(self, program: Program) -> tuple[int, list[str]]:
        """Run `program` to its end beside the others; its exit code and what it said."""
        child = self._adopt(program, once=True)
        while child.running:
            self.turn(seconds=0.1)
        self._drain(child)
        return child.process.returncode, child.said

    def run_until(self, condition: Callable[[], bool], *, seconds: float) -> bool:
        """Keep all running until `condition` holds; False if it still doesn't after `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.turn(seconds=0.1)
        return True

    def run_forever(self) -> None:
        """Keep all running until a signal comes."""
        while True:
            self.turn(seconds=0.5)

    def turn(self, *, seconds: float) -> None:
        """Pass on what the children wrote, waiting at most `seconds` for it, and start again those whose time has come."""
        for key, _ in self._selector.select(seconds):
            self._pass_on(key.data)
        for child in self._children:
            self._look_after(child)

    def say(self, line: str, *, name: str = "trinity") -> None:
        """One line on the terminal; a terminal that went away is no reason to stop."""
        if self._terminal is not None:
            try:
                self._terminal.write(f"{name:<8} | {line}\n")
                self._terminal.flush()
            except OSError:
                self._terminal = None

    def _show(self, line: str, *, name: str) -> None:
        """What a child said; a person at a terminal gets log lines as text."""
        at_terminal = self._terminal is not None and self._terminal.isatty()
        for part in legible(line) if at_terminal else [line]:
            self.say(part, name=name)

    # -- One child ---------------------------------------------------------------------------------------------------
    def _adopt(self, program: Program, *, once: bool) -> _Child:
        said: list[str] = []
        log = _Log(
            path=None if program.private else self._log_dir / f"{program.name}.log",
            show=said.append if program.private else partial(self._show, name=program.name),
        )
        child = _Child(program=program, log=log, said=said, once=once)
        self._children.append(child)
        self._listen_to(child)
        return child

    def _listen_to(self, child: _Child) -> None:
        self._selector.register(child.pipe, selectors.EVENT_READ, child)

    def _pass_on(self, child: _Child) -> bool:
        """Whether there may be more to read."""
        try:
            data = os.read(child.pipe.fileno(), 65_536)
        except BlockingIOError:
            return False
        if data:
            child.log.write(data)
        else:
            self._stop_listening_to(child)
        return bool(data)

    def _stop_listening_to(self, child: _Child) -> None:
        self._selector.unregister(child.pipe)
        child.pipe.close()

    def _drain(self, child: _Child) -> None:
        """Read the last words of a dead child; a grandchild that holds the pipe open is not waited for."""
        while not child.pipe.closed and self._pass_on(child):
            pass
        if not child.pipe.closed:
            self._stop_listening_to(child)

    def _look_after(self, child: _Child) -> None:
        if child.running or child.once or self._ending:
            return
        now = time.monotonic()
        if child.due_at is None:
            self._plan_restart(child, now)
        elif now >= child.due_at:
            child.spawn()
            self._listen_to(child)

    def _plan_restart(self, child: _Child, now: float) -> None:
        self._drain(child)
        if now - child.started_at > WELL_SECONDS:
            child.pause = FIRST_PAUSE_SECONDS
        child.due_at = now + child.pause
        self.say(f"{child.program.name} ended with {child.process.returncode}; starting it again in {child.pause:g} s")
        child.pause = min(child.pause * 2, LONGEST_PAUSE_SECONDS)

    # -- The end -----------------------------------------------------------------------------------------------------
    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        if self._ending:
            self._hurry = True
        else:
            self._ending = True
            raise Ended

    def _end(self) -> None:
        self._end_all([child for child in self._children if not child.program.last])
        self._end_all([child for child in self._children if child.program.last])
        for child in self._children:
            self._drain(child)
            child.log.close()
        self._selector.close()

    def _end_all(self, children: list[_Child]) -> None:
        for child in children:
            if child.running:
                child.process.terminate()
        deadline = time.monotonic() + self._grace_seconds
        while any(child.running for child in children) and not self._hurry and time.monotonic() < deadline:
            self.turn(seconds=0.05)
        for child in children:
            if child.running:
                child.kill()
