"""The database: every method is one transaction, or one conditional write."""

import uuid
from collections.abc import Iterable

from tests import invariants

from .ground import Ground
from .rows import CANCELLED, FAILED, QUEUED, RUNNING, SUCCESS, TERMINAL, Gate, Row


class Table(Ground):
    """Agents and rows."""

    # -- Looks ---------------------------------------------------------------------------------------------------------
    def look(self, agent: str, skip: Iterable[Row] = ()) -> Gate:
        """The limits in force and the head of the line."""
        of = self.agents[agent]
        return Gate(
            limit=of.limit.now,
            cap=self.fleet.cap.now,
            # Nothing of a deleted agent is admitted, either.
            paused=of.paused.now
            or (self.fleet.paused.now and self.rules.fleet_pause_read)
            or (of.deleted.now and self.rules.deleted_not_drained),
            line_full=len(self.queue_of(agent)) >= of.depth,
            head=self.head(agent, skip),
            at=self.tick(),
        )

    def head(self, agent: str, skip: Iterable[Row] = ()) -> Row | None:
        """The first startable row."""
        return min((row for row in self.line(agent) if row not in skip), key=self._place, default=None)

    def _place(self, row: Row) -> tuple[object, ...]:
        if not self.rules.line_order:
            return (row.key,)
        return row.place if self.rules.front_first else row.place[1:]

    def line(self, agent: str) -> list[Row]:
        """The startable rows."""
        return [row for row in self.rows if row.agent == agent and row.status == QUEUED and row.startable]

    def queue_of(self, agent: str) -> list[Row]:
        """The rows in line, startable or not."""
        return [row for row in self.rows if row.agent == agent and row.status == QUEUED]

    def waiting_agents(self) -> list[str]:
        """Agents with startable rows, the one served the longest ago first; of those never served, the one whose head waits longest."""
        waiting = [name for name, of in self.agents.items() if self.line(name) and not of.deleted.now]
        return sorted(waiting, key=self._turn) if self.rules.cap_goes_round else waiting

    def _turn(self, agent: str) -> tuple[int, int]:
        head = self.head(agent)
        return self.agents[agent].served_at, 0 if head is None else head.queued_at

    def session_is_unfinished(self, row: Row) -> bool:
        """Whether a row of the session has not ended, or its work may go on."""
        return any(other.status not in TERMINAL or other.token is not None for other in self.of_session(row))

    def of_session(self, row: Row) -> list[Row]:
        """The other rows of its session."""
        return [other for other in self.rows if row.session is not None and other.session == row.session and other is not row]

    def session_runs(self, row: Row) -> bool:
        """The partial unique index."""
        return self.rules.one_run_a_session and any(other.token is not None for other in self.of_session(row))

    def unsaid(self) -> bool:
        """Whether a row has ended, and its work may go on."""
        return any(row.token is not None and row.status in TERMINAL for row in self.rows)

    def row_of(self, execution_id: uuid.UUID) -> Row | None:
        """The row of an execution."""
        return next((row for row in self.rows if row.id == execution_id), None)

    # -- Into the table ------------------------------------------------------------------------------------------------
    def insert_running(self, row: Row, token: uuid.UUID, number: int) -> bool:
        """The row of a request that holds a slot already; a session's only where none of its rows came meanwhile.

        Its agent may have been deleted since the request looked: the row is ended by who ends the others.
        """
        if self.session_runs(row) or (self.session_is_unfinished(row) and self.rules.newcomer_asks_session_again):
            return False
        row.status, row.token, row.number, row.queued_at = RUNNING, token, number, self.tick()
        row.granted_at, row.startable = row.queued_at, True
        self.rows.append(row)
        return True

    def enqueue(self, row: Row, gate: Gate | None = None) -> bool:
        """Put a request in line, unless that is full; follow-ups and retries, which looked at no gate, may exceed its depth."""
        if self.agents[row.agent].deleted.now:
            return False
        is_full = len(self.queue_of(row.agent)) >= self.agents[row.agent].depth
        if gate is not None and (is_full if self.rules.depth_checked_in_line else gate.line_full):
            return False
        if gate is not None and is_full:
            self.fail(f"DEPTH row {row.key} taken in at the depth of {row.agent}")
        row.startable = not self.rules.one_run_a_session or row.session is None or not self.session_is_unfinished(row)
        row.status, row.queued_at = QUEUED, self.tick()
        row.in_line_since = row.queued_at
        self.rows.append(row)
        return True

    # -- Queued ⇄ running ----------------------------------------------------------------------------------------------
    def claim(self, row: Row, token: uuid.UUID, number: int) -> bool:
        """`queued → running` under `token`."""
        if self.rules.claim_needs_queued and not (row.status == QUEUED and row.startable and not row.cancel):
            return False
        if self.session_runs(row):
            return False
        if row.status in TERMINAL:
            self.fail(f"ENDED row {row.key} runs again")
        if any(other.status == QUEUED and other.queued_at < row.queued_at for other in self.of_session(row)):
            self.fail(f"SESSION {row.session}: row {row.key} before an older one")
        row.status, row.token, row.number, row.granted_at = RUNNING, token, number, self.tick()
        return True

    def wait_for_session(self, row: Row) -> None:
        """A row whose claim was lost to a run of its session waits for the end of that."""
        if row.status == QUEUED and self.session_runs(row) and self.rules.session_claim_lost_waits:
            row.startable = False

    def undo_claim(self, row: Row, token: uuid.UUID) -> bool:
        """Back to its place in line, if it never started."""
        if row.status != RUNNING or row.started or (self.rules.undo_needs_token and row.token != token):
            return False
        row.status, row.token, row.number, row.in_line_since = QUEUED, None, 0, self.tick()
        return True

    def undo_all_claims(self, *, granted_before: int) -> None:
        """Every row granted before then that never started back in line."""
        for row in self.rows:
            if row.token is not None and (row.granted_at < granted_before or not self.rules.rebuild_spares_later_grants):
                self.undo_claim(row, row.token)

    def start(self, row: Row, token: uuid.UUID, number: int = 0) -> bool:
        """Whether this caller may begin the work."""
        if row.status != RUNNING or row.started or (self.rules.start_needs_token and row.token != token):
            return False
        row.started, row.number = True, number or row.number
        return True

    def unstart(self, row: Row, token: uuid.UUID) -> None:
        """What a start that writes the row first has to do when its renewal is refused."""
        if row.status == RUNNING and row.token == token:
            row.status, row.started, row.token, row.in_line_since = QUEUED, False, None, self.tick()

    # -- To the end ----------------------------------------------------------------------------------------------------
    def finish(self, row: Row, token: uuid.UUID, *, ok: bool) -> bool:
        """Write the result; the row lets go of its slot."""
        if self.rules.finish_fenced and (row.status != RUNNING or row.token != token):
            return False
        self._end(row, SUCCESS if ok else FAILED)
        row.token = None
        self._let_next_start(row)
        return True

    def finish_and_claim(self, row: Row, token: uuid.UUID, next_token: uuid.UUID, *, ok: bool) -> tuple[bool, Row | None, Gate]:
        """`finish`, and the claim of the next startable row in the same transaction; the gate that this one looked at.

        No row is claimed while the agent or the fleet is paused, or the fleet has a cap: a freed place is the fleet's then.
        """
        gate = self.look(row.agent)
        if not self.finish(row, token, ok=ok):
            return False, None, gate
        if (gate.paused and self.rules.in_place_asks_pause) or (gate.cap is not None and self.rules.in_place_not_under_cap):
            return True, None, gate
        lost: list[Row] = []
        while (head := self.head(row.agent, lost)) is not None:
            if self.claim(head, next_token, 0):
                self.check_order(head, gate.at, newcomer=False, passed=lost)
                return True, head, gate
            lost.append(head)
        return True, None, gate

    def fail_granted(self, row: Row, token: uuid.UUID) -> bool:
        """Fail a row that holds a slot and can't be run."""
        if row.status != RUNNING or row.token != token or row.started:
            return False
        self._end(row, FAILED)
        row.token = None
        self._let_next_start(row)
        return True

    def fence(self, row: Row, token: uuid.UUID) -> bool:
        """Fail a started run; its token stays until its work is known to be over."""
        if row.status != RUNNING or row.token != token or not row.started:
            return False
        self._end(row, FAILED)
        if not self.rules.token_kept_until_stopped:
            row.token = None
            self._let_next_start(row)
        return True

    def clear_token(self, row: Row, token: uuid.UUID) -> bool:
        """A fenced row's work is over."""
        if row.token != token or row.status == RUNNING:
            return False
        row.token = None
        self._let_next_start(row)
        return True

    def cancel_queued(self, row: Row) -> bool:
        """Cancel a row in line."""
        if row.status in TERMINAL or (row.status != QUEUED and self.rules.cancel_queued_fenced):
            return False
        if row.started:
            self.fail(f"TOUCHED row {row.key}, which runs")
        self._end(row, CANCELLED)
        self._let_next_start(row)
        return True

    def cancel_granted(self, row: Row, token: uuid.UUID) -> bool:
        """Cancel a row that holds a slot and has not started."""
        if row.status != RUNNING or row.token != token or (row.started and self.rules.cancel_granted_fenced):
            return False
        self._end(row, CANCELLED)
        row.token = None
        self._let_next_start(row)
        return True

    def request_cancel(self, row: Row) -> bool:
        """From now on its outcome is `cancelled`."""
        if row.status != RUNNING or not row.started:
            return False
        row.cancel = True
        return True

    def _end(self, row: Row, status: str) -> None:
        if row.status in TERMINAL:
            self.fail(f"ENDED twice: row {row.key} {row.status} → {status}")
        row.status = CANCELLED if row.cancel else status

    def _let_next_start(self, row: Row) -> None:
        of_session = self.of_session(row)
        if not self.rules.next_of_session_startable or any(other.token for other in of_session):
            return
        queued = [other for other in of_session if other.status == QUEUED]
        by_age = self.rules.session_by_age
        first = min(queued, key=lambda other: (other.queued_at, other.key) if by_age else other.place, default=None)
        if first is not None and not first.startable:
            first.startable, first.in_line_since = True, self.tick()

    # -- Order ---------------------------------------------------------------------------------------------------------
    def check_order(self, row: Row, looked_at: int, *, newcomer: bool, passed: Iterable[Row] = ()) -> None:
        """Nobody who was startable in line when this admission looked, and still is, is passed over by it."""
        waiting = [other for other in self.line(row.agent) if other not in passed and other.in_line_since < looked_at]
        if waiting:
            self.told(lambda: invariants.check_grant(granted=row.seen(), waiting=[other.seen() for other in waiting], newcomer=newcomer))
