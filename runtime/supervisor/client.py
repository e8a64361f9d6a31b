"""The worker's end of its supervisor: starts commands and hears of their end. Safe in threads and after a fork."""

import atexit
import contextlib
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from . import child

#: Longest wait for the groups of a supervisor that died.
CLEAR_SECONDS = 5.0
#: What of the worker's environment the supervisor itself needs.
KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class NotStarted(Exception):
    """A command could not be started; `errno` says why, `filename` what was missing."""

    def __init__(self, *, detail: str, errno: int | None = None, filename: str | None = None) -> None:
        super().__init__(detail)
        self.errno = errno
        self.filename = filename


class SupervisorGone(Exception):
    """The supervisor ended before the command had started"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Nothing is left of a command. `status` is its exit code, negative for a signal.

    `by` is "" where it exited by itself, "asked" (`end` or `kill`), "deadline" (nobody extended it in time), or "lost"
    (its supervisor died, and it with it).
    """

    status: int
    by: str


class Command:
    """One command. The descriptors are this side's ends of its pipes, non-blocking; `bell` turns readable when it ended."""

    def __init__(self, *, link: "Link", run: int) -> None:
        self._link = link
        self._answered = threading.Event()
        self._finished = threading.Event()
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self.run = run
        self.pid: int | None = None
        self.ended: Ended | None = None
        self.theirs_in, self.stdin = os.pipe()
        self.stdout, self.theirs_out = os.pipe()
        self.stderr, self.theirs_err = os.pipe()
        self.bell, self._ring = os.pipe()
        self._open = {self.stdin, self.stdout, self.stderr, self.bell}
        for descriptor in self._open:
            os.set_blocking(descriptor, False)

    def end(self) -> None:
        """Ask it to end: SIGINT, and with a grace between them SIGTERM and SIGKILL. Returns at once."""
        self._link.send({"op": "end", "run": self.run})

    def kill(self) -> None:
        """End it without a grace. Returns at once."""
        self._link.send({"op": "kill", "run": self.run})

    def extend(self, deadline: float) -> None:
        """Let it go on until `deadline` on the system's monotonic clock. Returns at once."""
        self._link.send({"op": "extend", "run": self.run, "deadline": finite(deadline)})

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is over, after at most `seconds`."""
        return self._finished.wait(seconds)

    def close_stdin(self) -> None:
        """Tell it that there is no more input."""
        self._close(self.stdin)

    def close(self) -> None:
        """Kill it if it isn't over, wait until it is, and give its descriptors back."""
        if not self._finished.is_set():
            self.kill()
            self._finished.wait()
        with self._lock:
            if self._ring >= 0:
                os.close(self._ring)
            self._ring = -1
        for descriptor in list(self._open):
            self._close(descriptor)

    def wait_started(self) -> None:
        """Return when it runs; raises `NotStarted` or `SupervisorGone`."""
        self._answered.wait()
        for descriptor in (self.theirs_in, self.theirs_out, self.theirs_err):
            os.close(descriptor)
        if self._failure is not None:
            self.close()
            raise self._failure

    def deliver(self, message: child.Message) -> None:
        """Take what the supervisor reports; called by the link's thread."""
        if message["event"] == "started":
            self.pid = message["pid"]
        elif message["event"] == "failed":
            self._fail(NotStarted(detail=message["detail"], errno=message["errno"], filename=message["filename"]))
        elif message["event"] == "ended":
            self._over(Ended(status=message["status"], by=message["by"]))
        self._answered.set()

    def lose(self) -> None:
        """The supervisor is gone, and what it had started too."""
        if self.pid is None:
            self._fail(SupervisorGone())
        else:
            self._over(Ended(status=-signal.SIGKILL, by="lost"))
        self._answered.set()

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._finished.set()

    def _over(self, ended: Ended) -> None:
        with self._lock:
            self.ended = ended
            if self._ring >= 0:
                os.write(self._ring, b".")
        self._finished.set()

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)


class Link:
    """One supervisor process and the two threads that speak with it: no caller ever waits for its socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._runs = itertools.count(1)
        self._commands: dict[int, Command] = {}
        self._lock = threading.Lock()
        self.lost = False
        argv = [sys.executable, "-I", "-S", "-X", "utf8", child.__file__, str(theirs.fileno())]
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.process = subprocess.Popen(
            argv,
            env=env,
            cwd="/",
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._outbox: queue.SimpleQueue[tuple[bytes, tuple[int, ...]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=run, name="supervisor-link", daemon=True) for run in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def start(self, *, argv: list[str], cwd: str, env: dict[str, str], mark: str, deadline: float) -> Command:
        """The command, asked for but not known to be running yet."""
        command = Command(link=self, run=next(self._runs))
        message = {"op": "spawn", "run": command.run, "argv": argv, "cwd": cwd, "env": env, "mark": mark, "deadline": finite(deadline)}
        with self._lock:
            lost = self.lost
            self._commands[command.run] = command
        if lost:
            command.lose()
        else:
            self.send(message, (command.theirs_in, command.theirs_out, command.theirs_err))
        return command

    def send(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Put `message` on its way. The descriptors must stay open until it is answered."""
        self._outbox.put((child.pack(message), descriptors))

    def close(self) -> None:
        """End the supervisor and, by that, everything it started."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(child.LEAVE_SECONDS)

    def abandon(self) -> None:
        """Let go of the descriptor in a process forked off: the supervisor must not take that one for its worker."""
        self._socket.close()
        self.process.returncode = 0  # not this process's child

    def _write(self) -> None:
        while (item := self._outbox.get()) is not None:
            data, descriptors = item
            with contextlib.suppress(OSError):  # a supervisor that is gone: the reader tells the commands
                sent = socket.send_fds(self._socket, [data], descriptors) if descriptors else 0
                self._socket.sendall(memoryview(data)[sent:])

    def _read(self) -> None:
        unpacker = child.Unpacker()
        with contextlib.suppress(OSError):
            while data := self._socket.recv(65536):
                for message in unpacker.feed(data):
                    self._deliver(message)
        self._lose()

    def _deliver(self, message: child.Message) -> None:
        with self._lock:
            command = self._commands[message["run"]]
            if message["event"] != "started":
                del self._commands[message["run"]]
        command.deliver(message)

    def _lose(self) -> None:
        self.process.wait()
        with self._lock:
            self.lost = True
            commands = list(self._commands.values())
            self._commands.clear()
        clear([command.pid for command in commands if command.pid is not None])
        for command in commands:
            command.lose()
        self._outbox.put(None)
        self._threads[0].join()
        self._socket.close()


def clear(groups: list[int]) -> None:
    """Kill `groups` and wait until they are gone: their leaders died with the supervisor, the rest may not have."""
    until = time.monotonic() + CLEAR_SECONDS
    while groups and time.monotonic() < until:
        groups = [group for group in groups if _kill_group(group)]
        time.sleep(child.LOOK_SECONDS)


def _kill_group(group: int) -> bool:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def finite(deadline: float) -> float | None:
    """`deadline` for the wire: None is none."""
    return None if deadline == float("inf") else deadline


class _Links:
    """The link of this process: made at the first command, made anew when its supervisor died and after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link: Link | None = None

    def get(self) -> Link:
        with self._lock:
            if self._link is None or self._link.lost:
                self._link = Link()
            return self._link

    def close(self) -> None:
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.close()

    def forget(self) -> None:
        if self._link is not None:
            self._link.abandon()
        self._lock, self._link = threading.Lock(), None


_links = _Links()
os.register_at_fork(after_in_child=_links.forget)
atexit.register(_links.close)


def start(*, argv: list[str], cwd: str, env: dict[str, str], mark: str, deadline: float = float("inf")) -> Command:
    """Start `argv` under this process's supervisor; returns when it runs.

    Args:
        argv: The program, found along `env`'s PATH, and its arguments.
        cwd: Its working directory.
        env: Its whole environment.
        mark: `NAME=value`, one of `env`, by which what escapes from its process group is known.
        deadline: When it is killed unless it is extended, on the system's monotonic clock.

    Raises:
        NotStarted: It could not be started.
        SupervisorGone: The supervisor ended meanwhile; the next start makes a new one.
    """
    command = link().start(argv=argv, cwd=cwd, env=env, mark=mark, deadline=deadline)
    command.wait_started()
    return command


def link() -> Link:
    """The link of this process; made now if there is none."""
    return _links.get()


def close() -> None:
    """End this process's supervisor and all of its commands."""
    _links.close()
