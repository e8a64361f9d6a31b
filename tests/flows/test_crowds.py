"""Many at once: no limit is exceeded, nothing is lost, nothing begins twice. The agents' own ledgers say so."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests import seen
from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, check_ended, holders, poster, statuses, submit, unsettled
from tests.invariants import check_sequence
from tests.stack import Stack

Until = Callable[..., Any]


def post_from_processes(stack: Stack, agent: str, *, processes: int, each: int) -> list[tuple[int, dict[str, Any]]]:
    """What `processes` clients were answered, each posting `each` tasks at the same time as the others."""
    clients = [
        subprocess.Popen(poster(stack, agent, count=each, mark=str(number)), stdout=subprocess.PIPE, text=True)
        for number in range(processes)
    ]
    outputs = [client.communicate(timeout=120)[0] for client in clients]
    return [tuple(json.loads(line)) for output in outputs for line in output.splitlines()]  # type: ignore[misc]


def test_sixty_posts_from_eight_processes_never_show_the_agent_a_fourth(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=3, depth=100)
    answers = post_from_processes(stack, agent, processes=8, each=8)[:64]
    assert Counter(status for status, _ in answers) == {202: 64}
    until(lambda: unsettled(stack, agent) == 0, 60)
    assert agent_server.peak == 3
    check_ended(stack, agent, accepted=[body["execution_id"] for _, body in answers], begun=agent_server.started)
    assert statuses(stack, agent) == {"success": 64}
    assert holders(stack, agent) == 0


def test_two_hundred_posts_with_two_workers_all_run_once_within_the_limit(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=4, depth=500)
    second = stack.start_worker()
    try:
        answers = post_from_processes(stack, agent, processes=4, each=50)
        assert Counter(status for status, _ in answers) == {202: 200}
        until(lambda: unsettled(stack, agent) == 0, 90)
    finally:
        stack.stop_worker(second)
    assert agent_server.peak <= 4
    check_ended(stack, agent, accepted=[body["execution_id"] for _, body in answers], begun=agent_server.started)
    assert statuses(stack, agent) == {"success": 200}


def test_one_agents_long_line_does_not_delay_anothers_only_row(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    busy = stack.make_agent(runtime={"kind": "http", "url": agent_server.at("busy").url}, limit=1, depth=300)
    other = stack.make_agent(runtime={"kind": "http", "url": agent_server.at("other").url}, limit=1)
    api = stack.api()
    # The first one holds the line until all of it is there; it takes eight seconds from then on, however fast the machine.
    line = [submit(api, busy, "hang")["execution_id"]]
    line += [submit(api, busy, f"sleep=0.1 {number}")["execution_id"] for number in range(80)]
    until(lambda: agent_server.active == 1)
    agent_server.let_go()
    only = submit(api, other, "the only one")
    assert only["status"] == "accepted"
    until(lambda: all_ended(api, [only["execution_id"]]), 8)
    assert unsettled(stack, busy) > 0
    until(lambda: unsettled(stack, busy) == 0, 60)
    assert agent_server.at("busy").started == line
    check_sequence(rows=seen.rows_of(stack.sql, [busy]), began=line)
    check_ended(stack, busy, accepted=line, begun=agent_server.at("busy").started)


def test_a_message_delivered_again_and_again_is_one_run(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    api = stack.api()
    first = submit(api, agent, "sleep=0.5 once")
    token = stack.sql("SELECT slot_token FROM backlog_execution WHERE agent_name = %s", agent)[0]["slot_token"]
    for _ in range(5):
        stack.publish("runtime.run_execution", first["execution_id"], str(token))
    until(lambda: all_ended(api, [first["execution_id"]]))
    for _ in range(3):
        stack.publish("runtime.run_execution", first["execution_id"], str(token))
    last = submit(api, agent, "after them")
    until(lambda: all_ended(api, [last["execution_id"]]))
    assert agent_server.started == [first["execution_id"], last["execution_id"]]
    check_ended(stack, agent, accepted=agent_server.started, begun=agent_server.started)
