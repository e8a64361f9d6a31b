"""`manage.py doctor` beside a fleet at work, and beside one whose worker is frozen or gone."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.stack import Stack

ROOT = Path(__file__).parents[2]
Until = Callable[..., Any]


def examined(stack: Stack) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and the findings by name."""
    argv = [sys.executable, "manage.py", "doctor", "--json"]
    told = subprocess.run(argv, cwd=ROOT, env=stack.env, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in told.stderr, told.stderr
    return told.returncode, {finding["name"]: finding for finding in json.loads(told.stdout)["findings"]}


def test_a_fleet_at_work_is_found_well(stack: Stack, until: Until) -> None:
    until(lambda: examined(stack)[1]["slots"]["state"] == "ok", 60)
    code, found = examined(stack)
    assert code == 0
    assert {name for name, finding in found.items() if finding["state"] != "ok"} <= {"threads"}, "other tests' agents have many slots"
    assert found["workers"]["seen"] == "1 on 1 hosts, 32 threads"
    assert found["broker listeners"]["seen"] == "1 workers answered"


def test_a_frozen_worker_and_a_fleet_without_any_are_told(stack: Stack, until: Until) -> None:
    worker = stack.workers[0].process
    until(lambda: examined(stack)[1]["workers"]["state"] == "ok", 60)
    worker.send_signal(signal.SIGSTOP)
    try:
        listeners = examined(stack)[1]["broker listeners"]
    finally:
        worker.send_signal(signal.SIGCONT)
    assert (listeners["state"], listeners["mend"]) == ("warn", "Restart those that stay silent")
    assert listeners["seen"] == "0 of 1 workers answered within 1 s"
    stack.stop_worker()
    code, found = examined(stack)
    assert (code, found["workers"]["state"], found["workers"]["seen"]) == (1, "fail", "None is alive: nothing starts")
