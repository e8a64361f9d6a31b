"""What SQL and Redis show of a Trinity in other processes, as the checker of the invariants reads it."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import redis

from tests import invariants
from tests.invariants import SeenAgent, SeenHolder, SeenRow
from tests.waiting import until

#: Runs a query with `%s` for parameters; dicts of its rows (`Stack.sql`).
Sql = Callable[..., list[dict[str, Any]]]

HOLDERS = "agent:holders:"
_ROWS = """
SELECT id, agent_name, status, slot_token, slot_number, startable, started_at, queued_at, priority, front, retry_of_id, session_id
FROM backlog_execution
"""
_AGENTS = "SELECT name, max_parallel_tasks, paused, max_backlog_depth FROM fleet_agent WHERE deleted_at IS NULL"
_FLEET = "SELECT max_parallel_tasks_ceiling, max_concurrent_tasks, paused FROM fleet_fleetsettings"


def rows_of(sql: Sql, agents: Iterable[str] | None = None) -> list[SeenRow]:
    """Every execution's row, or those of some agents; ids as text."""
    wanted = None if agents is None else set(agents)
    return [row_of(columns) for columns in sql(_ROWS) if wanted is None or columns["agent_name"] in wanted]


def row_of(columns: Mapping[str, Any]) -> SeenRow:
    """An execution's row out of its columns."""
    return SeenRow(
        id=_text(columns["id"]),
        agent=columns["agent_name"],
        status=columns["status"],
        slot_token=_text(columns["slot_token"]),
        slot_number=columns["slot_number"],
        startable=bool(columns["startable"]),
        started=columns["started_at"] is not None,
        queued_at=columns["queued_at"],
        priority=columns["priority"],
        front=bool(columns["front"]),
        retry=columns["retry_of_id"] is not None,
        session=_text(columns["session_id"]),
    )


def _text(value: Any) -> str | None:
    """SQLite keeps UUIDs as bare hexadecimal digits."""
    return None if value is None else str(uuid.UUID(str(value)))


def holders_of(store: redis.Redis) -> list[SeenHolder]:
    """Every holder of the fleet, by the gate's own keys."""
    found = []
    for key in store.scan_iter(match=f"{HOLDERS}*", count=1000):
        for execution_id, value in store.hgetall(key).items():  # type: ignore[union-attr]
            token, phase, number, *_ = value.decode().split()
            name = key.decode().removeprefix(HOLDERS)
            found.append(SeenHolder(agent=name, execution_id=execution_id.decode(), token=token, number=int(number), phase=phase))
    return found


def agents_of(sql: Sql) -> list[SeenAgent]:
    """Every living agent with the limits in force."""
    (fleet,) = sql(_FLEET)
    return [
        SeenAgent(
            name=columns["name"],
            limit=min(columns["max_parallel_tasks"], fleet["max_parallel_tasks_ceiling"]),
            paused=bool(columns["paused"] or fleet["paused"]),
            depth=columns["max_backlog_depth"],
        )
        for columns in sql(_AGENTS)
    ]


def fleet_limit_of(sql: Sql) -> int | None:
    """The fleet's cap."""
    return sql(_FLEET)[0]["max_concurrent_tasks"]


def check_rest(
    sql: Sql, store: redis.Redis, *, names: Sequence[str], most_slots: Mapping[str, int] | None = None, seconds: float = 5
) -> None:
    """The invariants of a moment at rest hold for these agents, at the latest in `seconds`; else the last `Violation`."""
    broken: list[Exception] = []

    def holds() -> bool:
        rows, holders = rows_of(sql, names), holders_of(store)
        agents = [agent for agent in agents_of(sql) if agent.name in names]
        try:
            invariants.check_rest(rows=rows, holders=holders, agents=agents, most_slots=most_slots, fleet_limit=fleet_limit_of(sql))
        except invariants.Violation as violation:
            broken.append(violation)
            return False
        return True

    try:
        until(holds, seconds)
    except AssertionError:
        raise broken[-1] from None


def check_ended(sql: Sql, *, names: Sequence[str], accepted: Iterable[str], begun: Mapping[str, int] | None = None) -> None:
    """Every accepted execution of these agents has ended, once; `begun`: how often each began, by the agents' own ledger."""
    invariants.check_ended(rows=rows_of(sql, names), accepted=accepted, begun=begun)
