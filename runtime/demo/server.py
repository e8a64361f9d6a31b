"""An HTTP agent with Trinity's contract: `python -m runtime.demo.server --port 8100`. Does the work of `agent`, in threads."""

import argparse
import json
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from runtime.demo import agent

MAX_BODY_BYTES = 4 * 1024 * 1024


class Terminated(Exception):
    """The task was told to end."""


class DemoServer(ThreadingHTTPServer):
    """Serves tasks; `terminated` remembers every id that was told to end, so that a late task with it is refused."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, Handler)
        self._lock = threading.Lock()
        self._running: dict[str, threading.Event] = {}
        self.terminated: set[str] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    @property
    def running(self) -> int:
        """How many tasks go on."""
        return len(self._running)

    def work(self, *, execution_id: str, message: str) -> dict[str, Any]:
        """The answer to `message`; raises `Terminated`."""
        over = threading.Event()
        with self._lock:
            if execution_id in self.terminated:
                raise Terminated
            self._running[execution_id] = over
        try:
            for _, _, seconds in agent.steps_of(agent.seconds_asked(message)):
                if over.wait(seconds):
                    raise Terminated
            report = agent.report_on(message)
            return {"response": report, "session_id": None, "status": "success", "metadata": agent.usage_for(message, report)}
        finally:
            with self._lock:
                self._running.pop(execution_id, None)

    def terminate(self, execution_id: str) -> bool:
        """End the task; whether it was running."""
        with self._lock:
            self.terminated.add(execution_id)
            over = self._running.get(execution_id)
        if over is not None:
            over.set()
        return over is not None


class Handler(BaseHTTPRequestHandler):
    """The two endpoints, and `GET /` to see whether it lives."""

    server: DemoServer

    def do_GET(self) -> None:
        """Say that it lives."""
        self._answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        """A task, or the end of one."""
        parts = self.path.strip("/").split("/")
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MAX_BODY_BYTES))
        if parts[-2:] == ["api", "task"]:
            self._task(body)
        elif parts[-4:-2] == ["api", "executions"] and parts[-1] == "terminate":
            running = self.server.terminate(parts[-2])
            self._answer(200 if running else 404, {"status": "terminated" if running else "unknown"})
        else:
            self._answer(404, {"detail": "Not found"})

    def _task(self, body: bytes) -> None:
        try:
            task = json.loads(body)
            message, execution_id = str(task["message"]), str(task.get("execution_id") or uuid.uuid4())
        except (ValueError, KeyError, TypeError):
            self._answer(400, {"detail": "A JSON object with a message is needed"})
            return
        if message.lower().startswith("fail"):
            self._answer(500, {"detail": f"Failed as told: {message}"})
            return
        try:
            self._answer(200, self.server.work(execution_id=execution_id, message=message))
        except Terminated:
            self._answer(409, {"detail": "Terminated"})

    def _answer(self, status: int, fields: dict[str, Any]) -> None:
        data = json.dumps(fields).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:  # the caller no longer waits
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the one who calls keeps the log."""


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    options = parser.parse_args()
    with DemoServer((options.host, options.port)) as server:
        sys.stdout.write(f"Demo agent at {server.url}\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.exit(agent.INTERRUPTED)


if __name__ == "__main__":
    main()
