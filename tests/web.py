"""Web processes for tests: the real uvicorn with Trinity's settings, on a port of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import urlsplit, urlunsplit

import httpx
import psutil
from django.db import connection

from core.embedded_store import free_port
from core.tether import tethered
from tests.waiting import now, until


def database_url() -> str:
    """The address of this test process's database, for another process."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    parts = urlsplit(os.environ["DATABASE_URL"])
    return urlunsplit(parts._replace(path=f"/{name}"))


class WebProcess:
    """One web process; as a context manager it is ready inside and gone after."""

    def __init__(self, *, directory: Path, argv: list[str] | None = None, **variables: str) -> None:
        """`argv` in place of `manage.py serve`; `{port}` in it is filled in."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._argv = argv or ["manage.py", "serve", "--port", "{port}"]
        self._variables: Mapping[str, str] = variables
        self.log_file = directory / f"web-{self.port}.log"
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def process(self) -> psutil.Process:
        """The running process."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    @property
    def log(self) -> str:
        """What it has written."""
        return self.log_file.read_text()

    def start(self) -> None:
        """Start it and wait until it answers."""
        argv = [sys.executable, *(part.format(port=self.port) for part in self._argv)]
        self._log = self.log_file.open("wb")
        environment = os.environ | {"DJANGO_SETTINGS_MODULE": "trinity.settings"} | self._variables
        root = Path(__file__).parent.parent
        self._process = subprocess.Popen(tethered(argv), stdout=self._log, stderr=self._log, env=environment, cwd=root)
        until(lambda: self._process.poll() is not None or self._answers(), 90)  # type: ignore[union-attr]
        assert self._process.poll() is None, self.log

    def stop(self) -> float:
        """Ask it to end; the seconds that took."""
        assert self._process is not None
        assert self._log is not None
        if self._process.poll() is None:
            self._process.terminate()
        begun = now()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._log.close()
        return now() - begun

    def get(self, path: str, **options: Any) -> httpx.Response:
        """A GET of its own connection."""
        return httpx.get(self.url + path, **options)

    def _answers(self) -> bool:
        try:
            return self.get("/livez", timeout=1).status_code == 200
        except httpx.TransportError:
            return False
