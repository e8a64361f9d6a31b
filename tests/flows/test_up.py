"""`manage.py up`: everything in one foreground command, and nothing of it afterwards."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from core.embedded_store import free_port
from core.tether import tethered
from tests.environment import FOREIGN
from tests.stack import ROOT, START_SECONDS


class Up:
    """A running `up` and what it said."""

    def __init__(self, directory: Path, *options: str) -> None:
        """Start it on a free port, in a data directory below `directory`."""
        self.data_dir = directory / "data"
        self.port = free_port()
        self.log = directory / "up.log"
        env = {name: value for name, value in os.environ.items() if not name.startswith("TRINITY_") and name not in FOREIGN}
        argv = [sys.executable, "manage.py", "up", "--data-dir", str(self.data_dir), "--port", str(self.port), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(tethered(argv), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def said(self) -> str:
        """All it said."""
        return self.log.read_text()

    def family(self) -> list[psutil.Process]:
        """Its processes of the moment, itself left out."""
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts `up`, waits until it says that it is, and sees to its end."""
    started: list[Up] = []

    def start(*options: str) -> Up:
        one = Up(tmp_path, *options)
        started.append(one)
        deadline = time.monotonic() + START_SECONDS
        while "Trinity is up" not in one.said():
            assert one.process.poll() is None, one.said()
            assert time.monotonic() < deadline, one.said()
            time.sleep(0.05)
        return one

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def all_gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def test_ctrl_c_ends_everything_and_the_store_last(up: Callable[..., Up], until: Callable[..., Any]) -> None:
    one = up("--no-demo")
    family = one.family()
    assert len(family) >= 3
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(15) == 0
    assert all_gone(family), one.said()
    assert not (one.data_dir / "redis_url").exists()


def test_kill_9_of_up_leaves_no_process(up: Callable[..., Up], until: Callable[..., Any]) -> None:
    one = up("--no-demo")
    family = one.family()
    one.process.kill()
    one.process.wait()
    until(lambda: all_gone(family))


def test_a_child_that_dies_is_started_again(up: Callable[..., Up], until: Callable[..., Any]) -> None:
    one = up("--no-demo")
    web = next(process for process in one.family() if "serve" in process.cmdline())
    web.kill()
    until(lambda: "web ended with -9; starting it again" in one.said())

    def ready() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{one.port}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False

    until(ready, START_SECONDS)


def test_a_second_up_in_the_same_directory_is_refused(up: Callable[..., Up]) -> None:
    one = up("--no-demo")
    argv = [sys.executable, "manage.py", "up", "--data-dir", str(one.data_dir), "--port", str(free_port())]
    done = subprocess.run(argv, check=False, cwd=ROOT, capture_output=True, text=True, timeout=START_SECONDS)
    assert done.returncode == 1
    assert "Trinity is up already in" in done.stderr


def test_the_first_password_and_key_are_shown_once_and_kept_nowhere(up: Callable[..., Up]) -> None:
    one = up("--no-demo")
    said = one.said()
    password = re.search(r"with the password (\S+)", said)
    key = re.search(r"API key of owner: (trinity_\S+)", said)
    assert password
    assert key
    answer = httpx.get(f"http://127.0.0.1:{one.port}/api/agents/", headers={"Authorization": f"Bearer {key[1]}"}, trust_env=False)
    assert answer.status_code == httpx.codes.OK
    for log in (one.data_dir / "logs").iterdir():
        assert password[1] not in log.read_text()
        assert key[1] not in log.read_text()
