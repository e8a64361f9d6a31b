"""Slot stores that a test may kill and start again."""

import subprocess
from pathlib import Path

import redis

from core.embedded_store import EmbeddedStore, free_port, packaged_program, server_program
from core.tether import tethered
from tests.waiting import until


class OwnStore:
    """A server of one test: `start`, `kill`, and again, always at the same address."""

    def __init__(self, directory: Path) -> None:
        self._log_file = directory / "store.log"
        self._store = EmbeddedStore(
            program=packaged_program() or server_program(), directory=directory / "store", port=free_port(), password="secret"
        )
        self.url = self._store.url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(tethered(self._store.argv()), stdout=log, stderr=log)
        until(self._answers)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def client(self) -> redis.Redis:
        """A client of it, to be closed."""
        return redis.Redis.from_url(self.url)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
