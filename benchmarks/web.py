"""Trinity's web process, with a bare view beside its own."""

import http.client
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from core.embedded_store import free_port

from . import fleet
from .ground import Process, python, until

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Web:
    """Where it listens, and what it is."""

    port: int
    process: Process


@contextmanager
def served() -> Iterator[Web]:
    """The process, from when it answers until the block ends."""
    port = free_port()
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.web_settings"}
    process = Process("web", python("-m", "django", "serve", "--host", HOST, "--port", str(port)), env=env, directory=fleet.directory())
    try:
        until(lambda: _listens(port, process))
        yield Web(port, process)
    finally:
        process.end()


def _listens(port: int, process: Process) -> bool:
    process.require()
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()
