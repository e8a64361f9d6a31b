"""Agents that are local programs: the message on stdin, the request in the environment, the outcome on stdout."""

import errno
import json
import os
import selectors
import signal
import time
from pathlib import Path

from core import data_dir
from core.conf import conf
from runtime.supervisor import client

from .answers import decode, tail
from .base import Emit, Result, Run, Stop
from .endings import lease_lost, stopped, timed_out
from .output import Output

CHUNK_BYTES = 65536
#: What a program gets of the worker's own environment; nothing else of it, secrets least of all.
KEPT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


class CommandRuntime:
    """Runs one program per execution, under the worker's supervisor."""

    def run(self, run: Run, emit: Emit, stop: Stop) -> Result:
        """See `Runtime.run`."""
        if stop.reason is not None:
            return stopped(stop.reason)
        if not stop.lease_holds():
            return lease_lost()
        environment = environment_of(run)
        try:
            command = client.start(
                argv=[str(part) for part in run.settings["argv"]],
                cwd=directory_of(run),
                env=environment,
                mark=f"TRINITY_EXECUTION_ID={run.execution_id}",
                deadline=stop.deadline,
            )
        except client.NotStarted as error:
            return not_started(run, error)
        except client.SupervisorGone:
            return supervisor_lost()
        except OSError as error:
            return Result(error_code="agent_unreachable", error=f"The program could not be started: {error.strerror}")
        try:
            return Conversation(command=command, run=run, emit=emit, stop=stop).hold()
        finally:
            command.close()

    def cancel(self, run: Run) -> bool:
        """True: a command never outlives the supervisor of the worker that carried it."""
        return True


class Conversation:
    """The run's side of one command: feeds it, reads it, and sees to its end."""

    def __init__(self, *, command: client.Command, run: Run, emit: Emit, stop: Stop) -> None:
        self._command = command
        self._run = run
        self._stop = stop
        self._ends_at = time.monotonic() + run.timeout_seconds
        self._ending: Result | None = None
        self._input = memoryview(run.message.encode("utf-8", "replace"))
        self._output = Output(emit, keep_text=True)
        self._errors = b""
        self._left = conf.max_output_bytes
        self._selector = selectors.DefaultSelector()

    def hold(self) -> Result:
        """Talk with it until nothing of it is left."""
        self._stop.on_extend(self._command.extend)
        self._stop.on_set(self._obey)
        with self._selector:
            self._selector.register(self._command.bell, selectors.EVENT_READ, None)
            self._selector.register(self._command.stdin, selectors.EVENT_WRITE, self._feed)
            self._selector.register(self._command.stdout, selectors.EVENT_READ, self._listen)
            self._selector.register(self._command.stderr, selectors.EVENT_READ, self._overhear)
            while self._command.ended is None:
                self._turn()
            self._read_rest()
        return self._result(self._command.ended)

    def _turn(self) -> None:
        patience = None if self._ending else max(0.0, self._ends_at - time.monotonic())
        for key, _ in self._selector.select(patience):
            if key.data is not None:
                key.data()
        if self._ending is None and time.monotonic() >= self._ends_at:
            self._ending = timed_out(self._run)
            self._command.end()

    def _read_rest(self) -> None:
        """Read what is left in the pipes. All who could write are dead: no more can come."""
        for descriptor, read in ((self._command.stdout, self._listen), (self._command.stderr, self._overhear)):
            while descriptor in self._selector.get_map() and self._readable(descriptor):
                read()

    def _readable(self, descriptor: int) -> bool:
        return any(key.fd == descriptor for key, _ in self._selector.select(0))

    def _obey(self) -> None:
        """Told to stop: called from the keeper's thread."""
        if self._ending is None and self._stop.reason is not None:
            self._ending = stopped(self._stop.reason)
            self._command.end()

    def _feed(self) -> None:
        try:
            self._input = self._input[os.write(self._command.stdin, self._input[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no more, which is its own affair
            self._input = memoryview(b"")
        if not self._input:
            self._selector.unregister(self._command.stdin)
            self._command.close_stdin()

    def _listen(self) -> None:
        self._output.feed(self._read(self._command.stdout))

    def _overhear(self) -> None:
        self._errors = (self._errors + self._read(self._command.stderr))[-CHUNK_BYTES:]

    def _read(self, descriptor: int) -> bytes:
        """What there is, within the bound of the whole output."""
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            self._selector.unregister(descriptor)
        if len(data) > self._left and self._ending is None:
            self._ending = Result(error_code="agent_error", error=f"The agent's output exceeded {conf.max_output_bytes} bytes")
            self._command.kill()
        data = data[: self._left]
        self._left -= len(data)
        return data

    def _result(self, ended: client.Ended) -> Result:
        if self._ending is not None and (ended.by or self._left == 0):
            return self._ending
        if ended.by == "deadline":
            return lease_lost()
        if ended.by == "lost":
            return supervisor_lost()
        if ended.status != 0:
            return Result(error_code="agent_error", error=tail(decode(self._errors)) or how_it_ended(ended.status))
        self._output.close()
        return self._output.answer or Result(response=self._output.text)


def environment_of(run: Run) -> dict[str, str]:
    """The whole environment of a program: a few plain variables, the agent's own, and the request."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    request = {
        "TRINITY_EXECUTION_ID": str(run.execution_id),
        "TRINITY_SESSION_ID": str(run.session_id or ""),
        "TRINITY_AGENT": run.agent_name,
        "TRINITY_MODEL": run.model,
        "TRINITY_SYSTEM_PROMPT": run.system_prompt,
        "TRINITY_ALLOWED_TOOLS": "" if run.allowed_tools is None else json.dumps(run.allowed_tools),
        "TRINITY_MAX_TURNS": str(run.max_turns or ""),
    }
    own = {str(name): str(value) for name, value in (run.settings.get("env") or {}).items()}
    return {name: value.replace("\0", "") for name, value in (kept | own | request).items()}


def directory_of(run: Run) -> str:
    """The program's working directory: the agent's `cwd`, or one of its own that is made here."""
    if run.settings.get("cwd"):
        return str(run.settings["cwd"])
    home = Path(conf.agent_work_dir) if conf.agent_work_dir else data_dir.data_dir() / "agents"
    path = (home / run.agent_name).absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(path)


def not_started(run: Run, error: client.NotStarted) -> Result:
    """The outcome of a program that the system would not start."""
    if error.errno == errno.E2BIG:
        return Result(error_code="agent_error", error="The request is too large for a program's environment")
    if error.errno is None:
        return Result(error_code="agent_error", error=f"The program could not be started: {error}")
    missing = error.filename or run.settings["argv"][0]
    return Result(error_code="agent_unreachable", error=f"The program could not be started: {error}: {missing!r}")


def supervisor_lost() -> Result:
    """The outcome of a run that ended with its supervisor."""
    return Result(error_code="worker_lost", error="The supervisor of the worker's commands ended")


def how_it_ended(status: int) -> str:
    """A sentence for an exit code."""
    if status >= 0:
        return f"The program exited with status {status}"
    try:
        return f"The program was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"The program was ended by signal {-status}"
