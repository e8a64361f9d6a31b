"""A PostgreSQL server of a test's own, from the programs that the machine has; it may be stopped and started again."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

from core.embedded_store import free_port
from tests.stack import StackProcess
from tests.waiting import until

HOW_TO_GET_ONE = "No PostgreSQL server found: install the postgresql package"
START_SECONDS = 30.0


def programs() -> Path | None:
    """The directory of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class PostgresServer:
    """A server with its data in a directory of its own; tied to this process like all that a stack starts."""

    def __init__(self) -> None:
        """Make its data; it is not started."""
        found = programs()
        assert found is not None, HOW_TO_GET_ONE
        self._programs = found
        self.directory = Path(tempfile.mkdtemp(prefix="trinity-postgres-"))
        self._data = self.directory / "data"
        self.port = free_port()
        if os.getuid() == 0:
            shutil.chown(self.directory, "postgres")
        argv = [str(found / "initdb"), "-D", str(self._data), "-U", "trinity", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        subprocess.run(_as_postgres(argv), check=True, cwd=self.directory, capture_output=True, timeout=60)
        self._process: StackProcess | None = None

    @property
    def url(self) -> str:
        """The server's address, with the database that it comes with."""
        return f"postgres://trinity@127.0.0.1:{self.port}/postgres"

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until it answers unless told otherwise."""
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self._data, "max_connections": 200}
        argv = [str(self._programs / "postgres"), "-D", str(self._data), "-c", "fsync=off"]
        argv += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self._process = StackProcess("postgres", _as_postgres(argv), env=dict(os.environ), logs=self.directory)
        if ready:
            until(self.answers, START_SECONDS)

    def stop(self) -> None:
        """End it at once, all connections with it; what was committed stays."""
        if self._process is not None and self._process.running:
            self._process.process.send_signal(signal.SIGQUIT)
            self._process.process.wait(START_SECONDS)

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            with psycopg.connect(self.url, connect_timeout=2):
                return True
        except psycopg.Error:
            return False

    def close(self) -> None:
        """End it and remove its data."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def _as_postgres(argv: list[str]) -> list[str]:
    """The server refuses to run as root; the tie to the starter would be lost with the change of user if it weren't kept."""
    if os.getuid() != 0:
        return argv
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=keep", *argv]
