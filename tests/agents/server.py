"""A real HTTP agent for tests, that does as each message says and keeps its own ledger.

Words of a message that it obeys, in any place:
    sleep=0.5     works that long                   hang       works until it is terminated or `let_go()` is called
    status=429    answers that status               garbage    answers 200 with what isn't JSON
    size=1000     a response of so many characters  cut        closes the connection in the middle of its answer
    deaf=3        answers 500 to the first three terminates, and works on
    mumbles       answers a terminate a byte at a time, and works on
    stubborn      confirms a terminate only after its work is done, and then answers success all the same
    raw=silence   one of the answers of `hostile`   to=http://…   answers 302 and that address
Anything else in it is the task; the response is `done: {message}`.

`server.url` is one agent; `server.at("name")` is the ledger of another one, with a URL, a peak and an order of its own.
An id that was told to terminate is refused (409) from then on, known or not.
"""

import contextlib
import json
import re
import socket
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from . import hostile
from .ledger import Call, Ledger

USAGE = {"input_tokens": 11, "output_tokens": 7, "cost_usd": 0.0042}


class AgentServer(Ledger):
    """The server, and the ledger of all its agents together."""

    def __init__(self, port: int = 0) -> None:
        self._http = _Http(self, port)
        super().__init__(f"http://127.0.0.1:{self._http.server_address[1]}")
        self._ledgers: dict[str, Ledger] = {"": self}
        self._guard = threading.Lock()
        self._refusals: Counter[str] = Counter()
        self._open = threading.Event()
        self.terminated: list[str] = []
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and end all work; what connects afterwards is refused."""
        self._http.shutdown()
        self._http.server_close()
        self.let_go()
        self._thread.join()

    def at(self, name: str) -> Ledger:
        """The ledger of the agent `name`, whose URL is `{server.url}/{name}`."""
        with self._guard:
            return self._ledgers.setdefault(name, Ledger(f"{self.url}/{name}"))

    def let_go(self) -> None:
        """End every task that hangs or sleeps, as a success; none hangs from now on, those on their way included."""
        self._open.set()
        for call in self.calls:
            call.over.set()

    # -- called by the handler ---------------------------------------------------------------------------------------
    def begin_call(self, name: str, call: Call) -> bool:
        """Write it down, unless its id was told to terminate before."""
        ledgers = {self.at(name), self}
        with self._guard:
            if call.execution_id in self.terminated:
                return False
            for ledger in ledgers:
                ledger.begin(call)
        return True

    @property
    def hangs(self) -> bool:
        """Whether a task that is to hang does: until `let_go()`."""
        return not self._open.is_set()

    def end_call(self, name: str, call: Call) -> None:
        """Write down that it is over."""
        for ledger in {self.at(name), self}:
            ledger.end(call)

    def terminate(self, execution_id: str) -> int:
        """Tell a task to end; the status to answer with."""
        call = next((call for call in self.calls if call.execution_id == execution_id), None)
        with self._guard:
            deaf = number(call.message, "deaf") if call else None
            if deaf and self._refusals[execution_id] < deaf:
                self._refusals[execution_id] += 1
                return 500
            self.terminated.append(execution_id)
        if call is None:
            return 404
        if "stubborn" not in call.message:
            call.over.set()
        return 200 if not call.ended else 409


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, agents: AgentServer, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.agents = agents

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of it, unless it is that Trinity hung up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The ledger at a path, for whoever lives in another process."""
        ledger = self.server.agents.at(self.path.strip("/"))
        self._answer(200, {"started": ledger.started, "ended": ledger.ended, "peak": ledger.peak, "active": ledger.active})

    def do_POST(self) -> None:
        """A task, or the end of one."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if found := re.fullmatch(r"/?(.*?)/api/task", self.path):
            self._task(found[1], json.loads(body))
        elif found := re.fullmatch(r".*/api/executions/([^/]+)/terminate", self.path):
            self._end_task(found[1])
        else:
            self._answer(404, {"detail": "No such path"})

    def _task(self, name: str, body: dict[str, Any]) -> None:
        call = Call(execution_id=str(body.get("execution_id")), body=body, headers=dict(self.headers), port=self.client_address[1])
        if not self.server.agents.begin_call(name, call):
            self._answer(409, {"detail": "This execution was terminated"})
            return
        try:
            if raw := re.search(r"\braw=(\S+)", call.message):
                self._misbehave(call, raw[1])
                return
            self._work(call)
        finally:
            self.server.agents.end_call(name, call)
        self._answer_task(call)

    def _misbehave(self, call: Call, answer: str) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):  # Trinity hung up
            hostile.ANSWERS[answer](hostile.Wire(self.connection, call))

    def _end_task(self, execution_id: str) -> None:
        call = next((call for call in self.server.agents.calls if call.execution_id == execution_id), None)
        if call is not None and "mumbles" in call.message.split():
            with contextlib.suppress(OSError):
                hostile.ANSWERS["dribbled-head"](hostile.Wire(self.connection, call))
            self.close_connection = True
        else:
            self._answer(self.server.agents.terminate(execution_id), {})

    def _work(self, call: Call) -> None:
        if "hang" in call.message.split():
            if self.server.agents.hangs:  # asked after the call was written down: `let_go()` finds it there otherwise
                call.over.wait()
        elif seconds := number(call.message, "sleep"):
            call.over.wait(seconds)

    def _answer_task(self, call: Call) -> None:
        words = call.message.split()
        if call.execution_id in self.server.agents.terminated and "stubborn" not in words:
            self._answer(409, {"detail": "Terminated"})
        elif "garbage" in words:
            self._send(200, b"<html>not what was asked for")
        elif "cut" in words:
            self._cut()
        elif elsewhere := re.search(r"\bto=(\S+)", call.message):
            self._send(302, b"{}", Location=elsewhere[1])
        elif status := number(call.message, "status"):
            self._answer(int(status), {"detail": "authentication failed" if "auth" in words else f"told to answer {int(status)}"})
        else:
            size = number(call.message, "size")
            response = f"done: {call.message}" if size is None else "x" * int(size)
            self._answer(200, {"response": response, "session_id": None, "status": "success", "metadata": USAGE})

    def _cut(self) -> None:
        self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"response": "half of')
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _answer(self, status: int, fields: dict[str, Any]) -> None:
        self._send(status, json.dumps(fields).encode())

    def _send(self, status: int, data: bytes, **headers: str) -> None:
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:  # Trinity hung up
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def number(message: str, word: str) -> float | None:
    """The number that `word=` is followed by in `message`."""
    found = re.search(rf"\b{word}=(\d+(?:\.\d+)?)", message)
    return float(found[1]) if found else None
