"""A slot store that is killed and comes back with what it saved long ago: the rows are right, not the snapshot."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, execution, holders, submit
from tests.stack import Stack

Until = Callable[..., Any]
#: Is in the snapshot, and only there: a store that has it was started from the file.
MARK = "test:mark"


@pytest.fixture
def saved(stack: Stack) -> Iterator[Callable[[], None]]:
    """Makes the store save what it holds now, which it never does by itself; the file goes with the test."""

    def save() -> None:
        stack.redis.set(MARK, "saved", ex=600)
        assert stack.redis.save()

    yield save
    (stack.directory / "valkey" / "dump.rdb").unlink(missing_ok=True)
    stack.restart_store()


def held_ids(stack: Stack, agent: str) -> set[str]:
    """Who holds a slot by the gate itself."""
    return {member.decode() for member in stack.redis.zrange(f"agent:slots:{agent}", 0, -1)}  # type: ignore[union-attr]


def end(agent_server: AgentServer, ids: list[str]) -> None:
    """Let those tasks end."""
    for call in agent_server.calls:
        if call.execution_id in ids:
            call.over.set()


def first_answer(api: httpx.Client, agent: str, until: Until) -> dict[str, Any]:
    """The first answer to a post that is no 503; within five seconds there is one."""

    def post() -> httpx.Response | None:
        answer = api.post(f"/api/agents/{agent}/task", json={"message": "late", "async_mode": True})
        assert answer.status_code in (202, 503), answer.text
        return answer if answer.status_code == 202 else None

    return until(post, 5).json()


@pytest.mark.parametrize("then", [0, 1, 3], ids=["nobody held one", "one of them held one", "others held them all"])
def test_a_store_back_from_an_old_snapshot_admits_no_fourth_and_takes_no_slot_away(
    stack: Stack, agent_server: AgentServer, saved: Callable[[], None], until: Until, then: int
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=3)
    api = stack.api()
    old = [submit(api, agent, "hang")["execution_id"] for _ in range(then)]
    until(lambda: agent_server.active == then)
    saved()
    gone = old if then == 3 else []
    end(agent_server, gone)
    until(lambda: all_ended(api, gone) and holders(stack, agent) == then - len(gone))
    running = [one for one in old if one not in gone]
    running += [submit(api, agent, "hang")["execution_id"] for _ in range(3 - len(running))]
    until(lambda: agent_server.active == 3 and all(execution(api, one)["started_at"] for one in running))

    stack.redis.delete(MARK)
    stack.restart_store()
    began = time.monotonic()
    assert stack.redis.get(MARK) == b"saved"
    late = first_answer(api, agent, until)
    assert late["status"] == "queued"
    until(lambda: held_ids(stack, agent) == set(running), 5 - (time.monotonic() - began))
    assert agent_server.active == 3

    agent_server.let_go()
    until(lambda: all_ended(api, [*running, late["execution_id"]]), 30)
    assert agent_server.peak == 3
    assert [execution(api, one)["status"] for one in running] == ["success"] * 3
    assert Counter(agent_server.started) == dict.fromkeys([*gone, *running, late["execution_id"]], 1)
