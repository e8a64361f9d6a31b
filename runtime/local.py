"""The programs of one machine's Trinity, as `up` keeps them running."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.conf import conf
from core.embedded_store import EmbeddedStore
from core.process_tree import Program

#: Runs of a machine that is being stopped by hand get this long, unless `TRINITY_GRACE_SECONDS` says otherwise.
GRACE_SECONDS = 3
#: How much longer than their runs the processes themselves get: a stubborn command is asked thrice before it is killed.
EXIT_SECONDS = 8


@dataclass(frozen=True, kw_only=True)
class Local:
    """Where it listens, and what its programs find in their environment."""

    host: str
    port: int
    env: Mapping[str, str]

    @property
    def url(self) -> str:
        """The address to open; a wildcard address is reached through this machine's own."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::", ""} else self.host  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def grace_seconds(self) -> float:
        """How long the tree waits for its programs to end."""
        return float(self.env["TRINITY_GRACE_SECONDS"]) + EXIT_SECONDS

    def store(self, store: EmbeddedStore) -> Program:
        """The slot store."""
        return Program(name="store", argv=store.argv(), env=self.env, last=True)

    def module(self, name: str, module: str, *arguments: str, private: bool = False) -> Program:
        """A module run as a program."""
        return Program(name=name, argv=[sys.executable, "-m", module, *arguments], env=self.env, private=private)

    def prepare(self, *arguments: str) -> Program:
        """Migrations and the first owner, whose password goes to no log."""
        return self.module("prepare", "django", "prepare", *arguments, private=True)

    def web(self) -> Program:
        """HTTP and websockets."""
        return self.module("web", "django", "serve", "--host", self.host, "--port", str(self.port))

    def worker(self, number: int) -> Program:
        """A Celery worker: threads, for it waits on agents; no gossip, for nobody listens to the neighbours' events."""
        options = ["-P", "threads", "-c", str(conf.worker_threads), "-Q", "trinity", "-n", f"local{number}@%h", "--loglevel", "INFO"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        return self.module(f"worker{number}", "celery", "--quiet", "-A", "trinity", "worker", *options, *quiet)


def child_environment(*, data_dir: Path, redis_url: str, code: Path) -> dict[str, str]:
    """This process's environment, with what the children must agree on."""
    path = os.pathsep.join(part for part in (str(code), os.environ.get("PYTHONPATH", "")) if part)
    defaults = {"TRINITY_GRACE_SECONDS": str(GRACE_SECONDS)}
    shared = {
        "DJANGO_SETTINGS_MODULE": "trinity.settings",
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "REDIS_URL": redis_url,
        "TRINITY_DATA_DIR": str(data_dir),
    }
    return defaults | os.environ | shared
