"""Who looks at the lines while it goes on: whether any is longer than its depth, and who stood in it from when until when."""

import threading
import uuid
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tests import invariants, seen
from tests.chaos.agents import ChaosAgent
from tests.chaos.watch import AWAY, LOOK_SECONDS, seconds_of
from tests.invariants import SeenAgent, SeenGrant, SeenWait, Violation
from tests.stack import Stack

#: What a request may take from its look at the line to its id, with many threads and few cores.
BEFORE_ITS_ID_SECONDS = 1.0
#: Between two looks that are further apart a row may have had a slot for long, and have been put back.
MOST_APART_SECONDS = 1.0
_COLUMNS = "id, agent_name, status, slot_token, slot_number, startable, started_at, queued_at, priority, front, retry_of_id, session_id"
_CLOCK = {True: "statement_timestamp()", False: "strftime('%Y-%m-%d %H:%M:%f', 'now')"}
_IN_LINE = "SELECT {columns}, {clock} AS looked_at FROM backlog_execution WHERE status = 'queued'"
_GRANTED = f"SELECT {_COLUMNS}, granted_at FROM backlog_execution WHERE granted_at IS NOT NULL"


class LineWatch(threading.Thread):
    """Looks at every line, time and again."""

    def __init__(self, stack: Stack, *, fleet: list[ChaosAgent], postgres: bool) -> None:
        super().__init__(name="line watch", daemon=True)
        self._stack, self._fleet = stack, fleet
        self._look_at = _IN_LINE.format(columns=_COLUMNS, clock=_CLOCK[postgres])
        self._over = threading.Event()
        #: Of the rows that the last look saw in line; whoever was not there in between stands there anew.
        self._standing: dict[Any, SeenWait] = {}
        self._waits: list[SeenWait] = []
        self.too_long: list[str] = []
        self.longest: dict[str, int] = defaultdict(int)

    def run(self) -> None:
        """Until told to end."""
        while not self._over.wait(LOOK_SECONDS):
            try:
                looked = self._stack.sql(self._look_at)
            except AWAY:
                continue
            self._note(looked)

    def end(self) -> None:
        """Stop looking."""
        self._over.set()
        self.join()

    def check(self) -> None:
        """Raise the `Violation` that was seen, of the depths or of the order."""
        if self.too_long:
            raise Violation(self.too_long[0])
        grants = [_grant(columns) for columns in self._stack.sql(_GRANTED)]
        invariants.check_nobody_passed(waits=[*self._waits, *self._standing.values()], grants=grants, most_slots=self._most_slots())

    def _note(self, looked: list[dict[str, Any]]) -> None:
        rows = [seen.row_of(columns) for columns in looked]
        for name in {row.agent for row in rows}:
            self.longest[name] = max(self.longest[name], sum(row.agent == name for row in rows))
        try:
            invariants.check_depth(rows=rows, agents=self._depths(), most_slots=self._most_slots())
        except Violation as violation:
            self.too_long.append(str(violation))
        there = {row.id: (row, seconds_of(columns["looked_at"])) for columns, row in zip(looked, rows, strict=True) if row.startable}
        goes_on = {key for key, wait in self._standing.items() if key in there and there[key][1] - wait.seen_until < MOST_APART_SECONDS}
        self._waits += [wait for key, wait in self._standing.items() if key not in goes_on]
        since = {key: self._standing[key].seen_from for key in goes_on}
        self._standing = {key: SeenWait(row=row, seen_from=since.get(key, now), seen_until=now) for key, (row, now) in there.items()}

    def _most_slots(self) -> dict[str, int]:
        return {agent.name: max(agent.limits) for agent in self._fleet}

    def _depths(self) -> list[SeenAgent]:
        return [SeenAgent(name=agent.name, limit=agent.limit, depth=agent.depth) for agent in self._fleet]


def _grant(columns: Mapping[str, Any]) -> SeenGrant:
    row, came, at = seen.row_of(columns), seconds_of(columns["queued_at"]), seconds_of(columns["granted_at"])
    if came == at:
        # It never stood in line: whether anybody did was asked before its id was made, its row inserted when the database let it.
        came = _made_at(row.id) - BEFORE_ITS_ID_SECONDS
    return SeenGrant(row=row, came=came, at=at)


def _made_at(execution_id: Any) -> float:
    """The time in an id, in seconds since 1970."""
    return (uuid.UUID(str(execution_id)).int >> 80) / 1000
