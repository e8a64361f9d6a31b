"""The agents that `docs/agents.md` shows do what it says."""

import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.embedded_store import free_port
from core.tether import tethered
from runtime.runtimes import runtime_for
from runtime.runtimes.base import Result, Run, Stop, StopReason

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"
PROGRAMS = dict(zip(("http_agent.py", "count.py"), re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL), strict=True))
Events = list[tuple[str, dict[str, Any]]]
COUNTED = Result(response="2 words", usage={"input_tokens": 2, "output_tokens": None, "cost_usd": None})
STEPS: Events = [("progress", {"step": 1, "word": "one"}), ("progress", {"step": 2, "word": "two"})]


def run_of(message: str, **settings: Any) -> Run:
    ids = {"execution_id": uuid.uuid4(), "token": uuid.uuid4()}
    return Run(settings=settings, message=message, agent_name="counter", timeout_seconds=30, **ids)


def perform(kind: str, run: Run, events: Events, stop: Stop | None = None) -> Result:
    def take(kind: str, data: dict[str, Any]) -> bool:
        events.append((kind, data))
        return True

    return runtime_for(kind).run(run, take, stop or Stop())


@pytest.fixture
def url(tmp_path: Path, until: Callable[..., Any]) -> Iterator[str]:
    """The HTTP agent, running."""
    (tmp_path / "http_agent.py").write_text(PROGRAMS["http_agent.py"])
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        argv = tethered([sys.executable, str(tmp_path / "http_agent.py"), str(port)])
        with subprocess.Popen(argv, stdout=log, stderr=log) as process:
            until(lambda: _listens(port))
            yield f"http://127.0.0.1:{port}"
            process.terminate()


def _listens(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).status_code > 0
    except httpx.TransportError:
        return False


def test_the_http_agent_streams_its_events_and_its_result(url: str) -> None:
    events: Events = []
    assert perform("http", run_of("one two", url=url), events) == COUNTED
    assert events == STEPS


def test_the_http_agent_ends_what_is_cancelled_and_refuses_it_afterwards(url: str, until: Callable[..., Any]) -> None:
    run, stop, events = run_of("word " * 600, url=url), Stop(), Events()
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(perform, "http", run, events, stop)
        until(lambda: events)
        stop(StopReason.CANCELLED)
        assert outcome.result(10).error_code == "cancelled"
    assert perform("http", run, events).error == "The agent answered 409"


def test_the_command_tells_its_events_and_its_result(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(PROGRAMS["count.py"])
    events: Events = []
    assert perform("command", run_of("one two", argv=[sys.executable, str(tmp_path / "count.py")]), events) == COUNTED
    assert events == [*STEPS, ("text", {"text": "counted for counter"})]
