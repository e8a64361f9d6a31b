"""What the flows say to Trinity: short forms over HTTP."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import httpx

from tests import seen
from tests.stack import Stack

TERMINAL = ("success", "failed", "cancelled")

#: A client of its own process: posts `count` tasks to a path, one after the other, and prints each answer as a line of JSON.
POSTER = """
import json, sys
import httpx
url, key, path, count, mark = sys.argv[1:6]
with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False) as client:
    for number in range(int(count)):
        answer = client.post(path, json={"message": f"sleep=0.05 {mark}-{number}", "async_mode": True})
        print(json.dumps([answer.status_code, answer.json()]), flush=True)
"""


def poster(stack: Stack, agent: str, *, count: int, mark: str) -> list[str]:
    """The argv of a process that posts `count` tasks."""
    return [sys.executable, "-c", POSTER, stack.url, stack.owner_key, f"/api/agents/{agent}/task", str(count), mark]


def submit(api: httpx.Client, agent: str, message: str, **fields: Any) -> dict[str, Any]:
    """Submit an async task that must be accepted; its answer."""
    answer = api.post(f"/api/agents/{agent}/task", json={"message": message, "async_mode": True} | fields)
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    return answer.json()


def execution(api: httpx.Client, execution_id: str) -> dict[str, Any]:
    """An execution as the API shows it."""
    answer = api.get(f"/api/executions/{execution_id}/")
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()


def all_ended(api: httpx.Client, ids: Sequence[str]) -> bool:
    """Whether every one of the executions has a terminal status."""
    return all(execution(api, one)["status"] in TERMINAL for one in ids)


def holders(stack: Stack, agent: str) -> int:
    """How many hold a slot, by the gate itself."""
    return stack.redis.zcard(f"agent:slots:{agent}")  # type: ignore[return-value]


def unsettled(stack: Stack, agent: str) -> int:
    """How many rows of the agent have not ended or still hold a slot."""
    where = "agent_name = %s AND (status IN ('queued', 'running') OR slot_token IS NOT NULL)"
    return stack.sql(f"SELECT count(*) AS n FROM backlog_execution WHERE {where}", agent)[0]["n"]


def statuses(stack: Stack, agent: str) -> dict[str, int]:
    """`{status: rows}` of the agent."""
    rows = stack.sql("SELECT status, count(*) AS n FROM backlog_execution WHERE agent_name = %s GROUP BY status", agent)
    return {row["status"]: row["n"] for row in rows}


def check_rest(stack: Stack, *agents: str) -> None:
    """The invariants hold for these agents, now that nobody is on the move."""
    seen.check_rest(stack.sql, stack.redis, names=agents)


def check_ended(stack: Stack, agent: str, *, accepted: Iterable[str], begun: Iterable[str] | None = None) -> None:
    """All of the agent's executions have ended, the accepted ones among them; `begun`: each one's beginning at the agent."""
    seen.check_ended(stack.sql, names=[agent], accepted=accepted, begun=None if begun is None else Counter(begun))
    check_rest(stack, agent)
