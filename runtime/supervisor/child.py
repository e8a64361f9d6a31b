"""The supervisor: parent of all commands of one worker process. Standard library only, one thread, run by path.

It ends a command's whole process group, and whatever escaped from it, when it is told to, when the command's deadline
passes by the system's monotonic clock, when the command itself exits, and all at once when the worker's end of the
socket closes. So a worker that was killed, frozen or cut off leaves no work behind.

On the wire, both ways: a length (4 bytes, big endian) and one JSON object.
    to it:    spawn {run, argv, cwd, env, mark, deadline} with three descriptors · extend {run, deadline} · end {run} · kill {run}
    from it:  started {run, pid} · failed {run, errno, detail, filename} · ended {run, status, by}
"""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Between SIGINT, SIGTERM and SIGKILL.
GRACE_SECONDS = 2.0
#: How often it looks whether the rest of a group is gone.
LOOK_SECONDS = 0.005
#: How long it tries to end everything before it leaves itself.
LEAVE_SECONDS = 10.0
HEADER = struct.Struct("!I")
STEPS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = sys.platform == "linux"
LIBC = ctypes.CDLL(None, use_errno=True)

Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """`message` as it goes over the wire."""
    body = json.dumps(message).encode()
    return HEADER.pack(len(body)) + body


class Unpacker:
    """Turns the bytes of a stream back into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that `data` completes."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield json.loads(body)


class Job:
    """One command, from its start until nothing is left of it."""

    def __init__(self, *, run: int, pid: int, mark: bytes, deadline: float | None) -> None:
        self.run = run
        self.pid = pid
        self.mark = mark
        self.deadline = deadline
        self.status: int | None = None
        #: Who ended it: "" (it exited), "asked" or "deadline".
        self.by = ""
        self._steps: Iterator[signal.Signals] = iter(STEPS)
        self._next_step_at: float | None = None

    def ask(self, now: float) -> None:
        """Begin the ladder SIGINT, SIGTERM, SIGKILL; a second call changes nothing."""
        if self.status is None and self._next_step_at is None:
            self.by = self.by or "asked"
            self._next_step_at = now

    def kill(self, by: str) -> None:
        """End it without a grace."""
        self.by = self.by or by
        self.deadline = self._next_step_at = None
        self._signal(signal.SIGKILL)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.status is not None:
            return
        if self.deadline is not None and now >= self.deadline:
            self.kill("deadline")
        elif self._next_step_at is not None and now >= self._next_step_at:
            step = next(self._steps, None)
            self._next_step_at = None if step is None else now + GRACE_SECONDS
            if step is not None:
                self._signal(step)

    def due(self) -> float | None:
        """When `tick` has something to do."""
        if self.status is not None:
            return 0.0
        return min((at for at in (self.deadline, self._next_step_at) if at is not None), default=None)

    def reaped(self, status: int) -> None:
        """The command itself has exited: whatever it left in its group ends too."""
        self.status = status
        self._signal(signal.SIGKILL)

    def group_lives(self) -> bool:
        """Whether anybody is left in its group; signal 0 so that a reused number comes to no harm."""
        return self._signal(0)

    def _signal(self, number: int) -> bool:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS refuses for a group of zombies
            return False
        return True


class Supervisor:
    """The loop: messages in, exits noticed, deadlines kept."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._link.setblocking(False)
        self._jobs: dict[int, Job] = {}
        self._unpacker = Unpacker()
        self._descriptors: list[int] = []
        self._outbox = bytearray()
        self._connected = True
        self._bell, ring = socket.socketpair()
        self._bell.setblocking(False)
        ring.setblocking(False)
        self._ring = ring
        self._selector = selectors.DefaultSelector()
        self._selector.register(link, selectors.EVENT_READ, self._receive)
        self._selector.register(self._bell, selectors.EVENT_READ, self._hear)

    def serve(self) -> None:
        """Work until the worker's end closes; when it returns, nothing that it started lives."""
        signal.set_wakeup_fd(self._ring.fileno(), warn_on_full_buffer=False)
        try:
            while self._connected:
                for key, _ in self._selector.select(self._patience()):
                    key.data()
                self._turn()
        finally:
            self._end_everything()

    def _turn(self) -> None:
        self._reap()
        now = time.monotonic()
        for job in list(self._jobs.values()):
            job.tick(now)
            if job.status is not None and not job.group_lives() and not self._end_strays(job):
                del self._jobs[job.run]
                self._send({"event": "ended", "run": job.run, "status": job.status, "by": job.by})
        self._flush()

    def _patience(self) -> float | None:
        """Seconds to sleep: until the next deadline or step, a moment while the rest of a group is dying."""
        dues = [due for job in self._jobs.values() if (due := job.due()) is not None]
        return max(LOOK_SECONDS, min(dues) - time.monotonic()) if dues else None

    # -- the socket --------------------------------------------------------------------------------------------------
    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._link, 65536, 64)
        except BlockingIOError:
            return
        except OSError:  # a reset is an end as well: the worker died with an answer of ours unread
            data, descriptors = b"", []
        self._descriptors += descriptors
        if not data:
            self._connected = False
        for message in self._unpacker.feed(data):
            self._handle(message)

    def _handle(self, message: Message) -> None:
        operation = message["op"]
        if operation == "spawn":
            self._spawn(message)
            return
        job = self._jobs.get(message["run"])
        if job is None or job.status is not None:
            return
        if operation == "extend":
            job.deadline = message["deadline"]
        elif operation == "end":
            job.ask(time.monotonic())
        elif operation == "kill":
            job.kill("asked")

    def _send(self, message: Message) -> None:
        self._outbox += pack(message)

    def _flush(self) -> None:
        """Write what the socket takes: a frozen worker reads nothing, and its commands' deadlines must be kept."""
        with contextlib.suppress(BlockingIOError):
            while self._outbox:
                try:
                    del self._outbox[: self._link.send(self._outbox)]
                except BlockingIOError:
                    raise
                except OSError:
                    self._connected = False
                    return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        self._selector.modify(self._link, events, self._receive)

    # -- processes ---------------------------------------------------------------------------------------------------
    def _spawn(self, message: Message) -> None:
        streams, self._descriptors = self._descriptors[:3], self._descriptors[3:]
        run = message["run"]
        try:
            pid = spawn(message["argv"], cwd=message["cwd"], env=message["env"], streams=streams)
        except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
            name = getattr(error, "filename", None)
            detail = getattr(error, "strerror", None) or str(error)
            self._send({"event": "failed", "run": run, "errno": getattr(error, "errno", None), "detail": detail, "filename": name})
            return
        finally:
            for descriptor in streams:
                os.close(descriptor)
        self._jobs[run] = Job(run=run, pid=pid, mark=message["mark"].encode(), deadline=message["deadline"])
        self._send({"event": "started", "run": run, "pid": pid})

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(4096)

    def _reap(self) -> None:
        jobs = {job.pid: job for job in self._jobs.values() if job.status is None}
        for pid, status in exits():
            if pid in jobs:
                jobs[pid].reaped(status)

    def _end_strays(self, job: Job) -> bool:
        """Kill what left the group of the ended `job` and fell to us; whether there was any.

        An orphan that can't be shown to belong to another run that still goes on is taken for this one's: better one
        process too many ended than one that works on after its slot is given away.
        """
        others = [other for other in self._jobs.values() if other is not job and other.status is None]
        groups, marks = {other.pid for other in others}, {other.mark for other in others}
        strays = [pid for pid in children() if not _is_of(pid, groups, marks)]
        for pid in strays:
            _kill(pid)
        return bool(strays)

    def _end_everything(self) -> None:
        until = time.monotonic() + LEAVE_SECONDS
        for job in self._jobs.values():
            job.kill("worker")
        while has_children() and time.monotonic() < until:
            for pid in children():
                _kill(pid)
            time.sleep(LOOK_SECONDS)


def spawn(argv: list[str], *, cwd: str, env: dict[str, str], streams: list[int]) -> int:
    """Start `argv` as the leader of its own session, and return its process id."""
    parent = os.getpid()

    def die_with_parent() -> None:
        if LINUX:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    stdin, stdout, stderr = streams
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - sound here: this process has one thread
    )
    process.returncode = 0  # Popen would reap it behind our back, and a status lost so reads as success
    return process.pid


def exits() -> Iterator[tuple[int, int]]:
    """Process id and exit code (negative: a signal) of every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended[0], os.waitstatus_to_exitcode(ended[1])


def has_children() -> bool:
    """Whether any child lives; reaps those that have ended. As a subreaper we are told of every descendant."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    """Our children that are alive or not yet reaped, adopted ones among them; empty where there is no /proc."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except FileNotFoundError:  # a kernel without that file
        return [pid for pid in _all_pids() if _parent_of(pid) == os.getpid()]


def prctl(option: int, value: int) -> None:
    """Linux's prctl(2)."""
    if LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _is_of(pid: int, groups: set[int], marks: set[bytes]) -> bool:
    try:
        return os.getpgid(pid) in groups or not marks.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()] if LINUX else []


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def main(descriptor: int) -> None:
    """Serve the worker at the other end of `descriptor`."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # It lives as long as its worker does, which may want its grace after a SIGTERM to all. A handler, not SIG_IGN:
    # what is ignored stays ignored in the commands.
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    Supervisor(socket.socket(fileno=descriptor)).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
