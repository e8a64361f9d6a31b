"""Which executions a worker process is at work on right now, by the system's own books: its children and its connections."""

import contextlib
from urllib.parse import urlsplit

import psutil

from tests.agents.server import AgentServer


def carried_by(pid: int, *, server: AgentServer) -> frozenset[str]:
    """Their ids, as far as they can be told from outside."""
    try:
        worker = psutil.Process(pid)
        return _commands(worker) | _calls(worker, server)
    except psutil.Error:
        return frozenset()


def _commands(worker: psutil.Process) -> frozenset[str]:
    found = set()
    for child in worker.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found.add(child.environ().get("TRINITY_EXECUTION_ID", ""))
    return frozenset(found - {""})


def _calls(worker: psutil.Process, server: AgentServer) -> frozenset[str]:
    far = urlsplit(server.url).port
    ports = {one.laddr.port for one in worker.net_connections("tcp4") if one.raddr and one.raddr.port == far}
    return frozenset(call.execution_id for call in server.calls if not call.ended and call.port in ports)
