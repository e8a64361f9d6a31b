"""Workers killed, frozen, cut off and with a wrong clock: what they carried ends once, and its slots come back."""

import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.agents.programs import living
from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, check_ended, execution, holders, submit, unsettled
from tests.proxy import Proxy
from tests.stack import CLOCKS, Stack, StackProcess
from tests.waiting import now

Until = Callable[..., Any]

LEASE_SECONDS = float(CLOCKS["TRINITY_LEASE_SECONDS"])
#: Long past the lease, the fence and the margin, for a machine that is busy with other things.
BACK_SECONDS = 5 * LEASE_SECONDS
#: Runs for as long as it is let, if it is asked to be long.
PROGRAM = ["sh", "-c", 'read m; case "$m" in long*) exec sleep 600;; esac; echo "$m"']
FAKETIME = next((str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


@pytest.fixture
def victim(stack: Stack) -> Iterator[StackProcess]:
    """The one worker there is; whoever is left at the end is thawed."""
    while len(stack.workers) > 1:
        stack.stop_worker()
    (worker,) = stack.workers
    yield worker
    if worker.running:
        worker.thaw()


def commands(stack: Stack, *, limit: int) -> str:
    """An agent whose long tasks are processes."""
    return stack.make_agent(runtime={"kind": "command", "argv": PROGRAM}, limit=limit)


def works(execution_id: str) -> bool:
    """Whether a process of this execution lives."""
    return bool(living(f"TRINITY_EXECUTION_ID={execution_id}"))


def in_slots(stack: Stack, agent: str) -> list[str]:
    """Who holds a slot."""
    return [member.decode() for member in stack.redis.zrange(f"agent:slots:{agent}", 0, -1)]  # type: ignore[union-attr]


def repairs(api: httpx.Client, execution_id: str) -> list[str]:
    """The kinds of repair in the execution's log."""
    log = api.get(f"/api/executions/{execution_id}/events/").json()["results"]
    return [event["data"]["kind"] for event in log if event["type"] == "repair"]


def handed_on(first: str, second: str, both: list[bool]) -> Callable[[], bool]:
    """Whether the second's work goes on; notes in `both` whether the first's does too."""

    def look() -> bool:
        going_on = works(second)
        both.append(works(first) and going_on)
        return going_on

    return look


def test_a_killed_workers_five_slots_come_back_and_the_line_goes_on(
    stack: Stack, victim: StackProcess, agent_server: AgentServer, until: Until, record_property: Callable[[str, object], None]
) -> None:
    api = stack.api(stack.superuser_key)
    local, remote = commands(stack, limit=3), stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    lost = {local: [submit(api, local, "long\n")["execution_id"] for _ in range(3)]}
    lost[remote] = [submit(stack.api(), remote, "hang")["execution_id"] for _ in range(2)]
    until(lambda: all(works(one) for one in lost[local]) and agent_server.active == 2, 30)
    waiting = {name: [submit(api, name, f"short {number}\n")["execution_id"] for number in range(3)] for name in (local, remote)}
    stack.start_worker()
    killed_at = now()
    stack.kill_worker(victim)
    until(lambda: not any(works(one) for one in lost[local]), 12)
    for kind, name in (("command", local), ("http", remote)):
        until(lambda name=name: all_ended(api, waiting[name]), BACK_SECONDS)
        record_property(f"slots_back_seconds_{kind}", round(now() - killed_at, 1))
    for name in (local, remote):
        until(lambda name=name: unsettled(stack, name) == 0, BACK_SECONDS)
        ends = [(execution(api, one)["status"], execution(api, one)["error_code"]) for one in lost[name]]
        assert ends == [("failed", "worker_lost")] * len(ends)
        assert {execution(api, one)["status"] for one in waiting[name]} == {"success"}
        until(lambda name=name: all("slot_given_back" in repairs(api, one) for one in lost[name]))
    assert {kind for one in lost[local] for kind in repairs(api, one)} == {"worker_lost", "slot_given_back"}
    assert {kind for one in lost[remote] for kind in repairs(api, one)} == {"worker_lost", "asked_to_end", "slot_given_back"}
    assert (agent_server.peak, set(agent_server.terminated) >= set(lost[remote])) == (2, True)
    check_ended(stack, local, accepted=lost[local] + waiting[local])
    check_ended(stack, remote, accepted=lost[remote] + waiting[remote], begun=agent_server.started)


def test_a_frozen_workers_work_ends_before_its_slot_goes_on_and_it_thaws_to_nothing(
    stack: Stack, victim: StackProcess, agent_server: AgentServer, until: Until
) -> None:
    api = stack.api(stack.superuser_key)
    local, remote = commands(stack, limit=1), stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    first, far_first = submit(api, local, "long\n")["execution_id"], submit(stack.api(), remote, "hang")["execution_id"]
    until(lambda: works(first) and agent_server.active == 1, 30)
    second, far_second = submit(api, local, "long\n")["execution_id"], submit(stack.api(), remote, "hang")["execution_id"]
    stack.start_worker()
    victim.freeze()
    both: list[bool] = []
    until(handed_on(first, second, both), BACK_SECONDS)
    assert not any(both)
    until(lambda: agent_server.started == [far_first, far_second], BACK_SECONDS)
    assert (agent_server.peak, set(agent_server.terminated)) == (1, {far_first})
    victim.thaw()
    # It ends by itself only when its threads have written their late results and given back what they believe to hold.
    stack.stop_worker(victim)
    for one in (first, far_first):
        assert (execution(api, one)["status"], execution(api, one)["error_code"]) == ("failed", "worker_lost")
    assert (in_slots(stack, local), in_slots(stack, remote)) == ([second], [far_second])
    assert (works(second), agent_server.active, execution(api, second)["status"]) == (True, 1, "running")
    agent_server.let_go()
    assert api.post(f"/api/executions/{second}/cancel/").status_code == httpx.codes.ACCEPTED
    until(lambda: unsettled(stack, local) == 0 and unsettled(stack, remote) == 0, 30)
    check_ended(stack, local, accepted=[first, second])
    check_ended(stack, remote, accepted=[far_first, far_second], begun=agent_server.started)


def test_a_worker_cut_off_from_its_stores_ends_its_work_by_its_own_clock(stack: Stack, victim: StackProcess, until: Until) -> None:
    api = stack.api(stack.superuser_key)
    agent = commands(stack, limit=1)
    with ExitStack() as opened:
        cuts, env = through_proxies(stack, opened)
        cut_off = stack.start_worker(**env)
        stack.stop_worker(victim)
        first = submit(api, agent, "long\n")["execution_id"]
        until(lambda: works(first), 30)
        second = submit(api, agent, "long\n")["execution_id"]
        stack.start_worker()
        for cut in cuts:
            cut.stop()
        both: list[bool] = []
        until(handed_on(first, second, both), BACK_SECONDS)
        assert not any(both)
        for cut in cuts:
            cut.resume()
        stack.stop_worker(cut_off)
    assert (execution(api, first)["status"], execution(api, first)["error_code"]) == ("failed", "worker_lost")
    assert (in_slots(stack, agent), works(second)) == ([second], True)
    assert api.post(f"/api/executions/{second}/cancel/").status_code == httpx.codes.ACCEPTED
    until(lambda: unsettled(stack, agent) == 0, 30)
    check_ended(stack, agent, accepted=[first, second])


def through_proxies(stack: Stack, opened: ExitStack) -> tuple[list[Proxy], dict[str, str]]:
    """Proxies before the stores of one worker, and what that worker's environment says instead. A file can't be cut off."""
    proxies, env = [], {}
    for name in ("REDIS_URL", "DATABASE_URL"):
        if url := stack.env.get(name):
            proxy = opened.enter_context(Proxy(urlsplit(url).port or 5432))
            proxies.append(proxy)
            env[name] = proxy.through(url)
    return proxies, env


def test_the_same_message_many_times_over_begins_the_work_once(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    task = submit(stack.api(), agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1, 30)
    (row,) = stack.sql("SELECT slot_token FROM backlog_execution WHERE id = %s", uuid.UUID(task))
    message = ("runtime.run_execution", task, str(uuid.UUID(str(row["slot_token"]))))
    for _ in range(5):
        stack.publish(*message)
    agent_server.let_go()
    until(lambda: all_ended(stack.api(), [task]), 30)
    for _ in range(5):
        stack.publish(*message)
    after = submit(stack.api(), agent, "after them all")["execution_id"]
    until(lambda: all_ended(stack.api(), [after]) and not stack.redis.llen("celery:trinity"), 30)
    assert Counter(agent_server.started) == {task: 1, after: 1}
    until(lambda: holders(stack, agent) == 0)


def test_a_host_whose_clock_is_an_hour_off_keeps_leases_and_order(
    stack: Stack, victim: StackProcess, agent_server: AgentServer, until: Until
) -> None:
    if FAKETIME is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("No libfaketime found: install the faketime package")
    env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+3600s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    odd = stack.start_worker(**env)
    stack.stop_worker(victim)
    api = stack.api()
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    local = commands(stack, limit=1)
    held = submit(api, agent, "hang")["execution_id"]
    command = submit(stack.api(stack.superuser_key), local, "long\n")["execution_id"]
    until(lambda: agent_server.active == 1 and works(command), 30)
    line = [submit(api, agent, f"sleep=0.1 {number}")["execution_id"] for number in range(4)]
    # A right clock joins: neither takes what is the other's, for longer than a lease.
    stack.start_worker()
    began = now()
    until(lambda: now() - began > 1.3 * LEASE_SECONDS, 2 * LEASE_SECONDS)
    assert (in_slots(stack, agent), in_slots(stack, local), agent_server.peak) == ([held], [command], 1)
    agent_server.let_go()
    until(lambda: all_ended(api, line), 30)
    assert agent_server.started == [held, *line]
    ended = [execution(api, one) for one in [held, *line]]
    assert [one["status"] for one in ended] == ["success"] * 5
    # A file has no clock of its own, only that of whoever opens it: a message may then be sent twice, which changes nothing.
    harmless = set() if "DATABASE_URL" in stack.env else {"dispatched_again"}
    assert {kind for one in ended for kind in repairs(api, one["id"])} <= harmless
    assert stack.api(stack.superuser_key).post(f"/api/executions/{command}/cancel/").status_code == httpx.codes.ACCEPTED
    until(lambda: unsettled(stack, local) == 0, 30)
    odd.signal(signal.SIGTERM)
    until(lambda: not odd.running, 20)
