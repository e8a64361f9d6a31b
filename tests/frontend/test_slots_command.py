"""`manage.py slots`: the fleet in the terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command

from backlog.models import Execution, Status
from capacity.manager import CapacityManager
from capacity.selectors import Meter
from core.tether import tethered
from fleet.models import Agent
from frontend.terminal import Row, _bar
from tests.stack import ROOT, Stack

MakeAgent = Callable[..., Agent]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def gate(valkey: redis.Redis, db: None) -> None:
    """The slot store is open."""
    CapacityManager().rebuild()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints."""
    call_command("slots", *arguments)
    return capsys.readouterr().out


def wait_in_line(agent: Agent, count: int) -> None:
    """Rows in the agent's line."""
    for _ in range(count):
        Execution.objects.create(agent=agent, agent_name=agent.name, message="x", timeout_seconds=60, status=Status.QUEUED)


@pytest.mark.usefixtures("gate")
def test_a_line_an_agent_and_the_sums_below(capsys: pytest.CaptureFixture[str], make_agent: MakeAgent) -> None:
    wait_in_line(make_agent(name="a" * 63, limit=2), 3)
    make_agent(name="paused-one", paused=True)
    lines = [line.split() for line in shown(capsys).splitlines()]
    assert lines[0][:2] == ["agent", "slots"]
    assert lines[1][:4] == ["a" * 63, "□□", "0/2", "3"]
    assert lines[1][-1] == "backlogged"
    assert lines[2] == ["paused-one", "□□□", "0/3", "paused"]
    assert " ".join(lines[3]) == "2 agents · 0 of 5 slots in use · 3 waiting"


@pytest.mark.usefixtures("gate")
def test_json_is_one_line_for_programs(capsys: pytest.CaptureFixture[str], make_agent: MakeAgent) -> None:
    wait_in_line(make_agent(name="one", limit=2), 1)
    make_agent(name="other")
    text = shown(capsys, "--json", "--agent", "one")
    assert text.count("\n") == 1
    read = json.loads(text)
    assert (read["known"], list(read["agents"])) == (True, ["one"])
    one = read["agents"]["one"]
    assert (one["active"], one["max"], one["queued"], one["health"]) == (0, 2, 1, "backlogged")
    assert one["oldest_wait_seconds"] >= 0


@pytest.mark.usefixtures("gate")
def test_a_thousand_agents_cost_as_many_queries_as_two(
    capsys: pytest.CaptureFixture[str], make_agent: MakeAgent, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    owner = make_agent().owner
    Agent.objects.bulk_create(Agent(name=f"many-{number}", owner=owner, runtime_kind="command") for number in range(999))
    with django_assert_max_num_queries(5):
        assert shown(capsys).count("many-") == 999


@pytest.mark.usefixtures("gate")
def test_no_agents_and_no_such_agent(capsys: pytest.CaptureFixture[str]) -> None:
    assert "0 agents" in shown(capsys)
    with pytest.raises(CommandError, match="No agent is named nobody"):
        call_command("slots", "--agent", "nobody")


@pytest.mark.usefixtures("gate")
def test_a_slot_store_that_is_down_is_told_and_nobody_is_idle(
    capsys: pytest.CaptureFixture[str], agent: Agent, store_out_of_reach: Callable[[bool], None]
) -> None:
    store_out_of_reach(True)
    with pytest.raises(SystemExit) as ended:
        call_command("slots")
    assert ended.value.code == 3
    said = capsys.readouterr().out
    assert "The slot store can't be asked" in said
    assert "idle" not in said
    with pytest.raises(SystemExit):
        call_command("slots", "--json")
    read = json.loads(capsys.readouterr().out)
    assert (read["known"], read["agents"][agent.name]["active"], read["agents"][agent.name]["health"]) == (False, None, "unknown")


@pytest.mark.parametrize(
    ("active", "limit", "bar"),
    [(0, 3, "□□□"), (2, 3, "■■□"), (5, 3, "■■■"), (None, 3, "???"), (1, 32, "■" + "□" * 19), (31, 32, "■" * 19 + "□"), (32, 32, "■" * 20)],
)
def test_the_bar_shows_a_taken_slot_and_a_free_one(active: int | None, limit: int, bar: str) -> None:
    meter = Meter(max=limit, active=active, queued=0, paused=False, version=1)
    assert _bar(meter) == bar
    assert Row(name="a", meter=meter, oldest_wait_seconds=None).as_dict()["max"] == limit


# -- As a process ----------------------------------------------------------------------------------------------------
@pytest.fixture
def start(stack: Stack) -> Iterator[Start]:
    """Starts the command as an operator does; it ends with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def started(*arguments: str, stdout: int) -> subprocess.Popen[bytes]:
        argv = tethered([sys.executable, "manage.py", "slots", *arguments])
        env = stack.env | {"TERM": "xterm", "COLUMNS": "120"}
        # Tests that a shell started in its background ignore this signal, and so would what they start.
        inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            running.append(subprocess.Popen(argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=stdout))
        finally:
            signal.signal(signal.SIGINT, inherited)
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.flows
def test_watching_follows_the_fleet_until_it_is_interrupted(stack: Stack, start: Start, tmp_path: Path, until: Callable[..., Any]) -> None:
    agent = stack.make_agent(runtime={"kind": "command", "argv": ["sleep", "60"]}, limit=2)
    out = tmp_path / "lines"
    with out.open("wb") as file:
        watching = start("--watch", "--json", "--agent", agent, stdout=file.fileno())

    def last_active() -> int | None:
        lines = out.read_text().splitlines()
        assert watching.poll() is None
        return json.loads(lines[-1])["agents"][agent]["active"] if lines else None

    until(lambda: last_active() == 0, 60)
    api = stack.api(stack.superuser_key)
    submitted = api.post(f"/api/agents/{agent}/task", json={"message": "x", "async_mode": True})
    until(lambda: last_active() == 1, 60)
    api.post(f"/api/executions/{submitted.json()['execution_id']}/cancel/")
    until(lambda: last_active() == 0, 60)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(20) == 0


@pytest.mark.flows
def test_on_a_terminal_the_table_is_drawn_again_and_again(stack: Stack, start: Start, until: Callable[..., Any]) -> None:
    agent = stack.make_agent(runtime={"kind": "command", "argv": ["cat"]}, limit=2)
    ours, theirs = pty.openpty()
    watching = start("--watch", "--agent", agent, stdout=theirs)
    os.close(theirs)
    os.set_blocking(ours, False)
    drawn = b""

    def times() -> int:
        nonlocal drawn
        try:
            drawn += os.read(ours, 65_536)
        except BlockingIOError:
            assert watching.poll() is None
        return drawn.count(agent.encode())

    until(lambda: times() >= 2, 60)
    watching.send_signal(signal.SIGTERM)
    assert watching.wait(20) == 128 + signal.SIGTERM
    times()
    os.close(ours)
    assert drawn.count(b"\x1b[?25l") == drawn.count(b"\x1b[?25h") == 1, "the cursor is hidden and given back"
