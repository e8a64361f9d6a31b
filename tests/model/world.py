"""What the actors act on: rows, messages, the agents' own ledger. Every method is one atomic step, and checks as it goes."""

import itertools
import random
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

import redis

from capacity import keys, slots
from capacity.errors import SlotsUnavailable
from capacity.leases import Lease

from .rules import Rules

QUEUED, RUNNING, SUCCESS, FAILED, CANCELLED = "queued", "running", "success", "failed", "cancelled"
TERMINAL = (SUCCESS, FAILED, CANCELLED)
LEASE_SECONDS = 60
MOST_WAITS = 200
WAYS = ("in place", "in place", "message", "release")
OTHER_RUN = "0" * 40


#: Key → its life in milliseconds (0: for ever) and its value.
Snapshot = dict[bytes, tuple[int, bytes]]


class Violation(AssertionError):
    """An invariant broke; the first word says which."""


@dataclass(eq=False)
class Row:
    """One execution."""

    id: uuid.UUID
    key: int
    agent: str
    http: bool
    priority: int
    session: int | None
    status: str = ""
    startable: bool = False
    token: uuid.UUID | None = None
    number: int = 0
    granted_at: int = 0
    started: bool = False
    cancel: bool = False
    queued_at: int = 0
    #: Since when it has been startable in line without a break.
    in_line_since: int = 0
    begun: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """The order of the line."""
        return (-self.priority, self.queued_at, self.key)


@dataclass
class AgentRow:
    """An agent's settings."""

    limit: int
    paused: bool = False


@dataclass(frozen=True)
class Gate:
    """What an admission reads at once, and when."""

    limit: int
    fleet_limit: int | None
    paused: bool
    head: Row | None
    at: int


@dataclass(frozen=True)
class Grant:
    """A slot that was granted: how many-th grant it was, and the limit that it read."""

    nth: int
    limit: int


@dataclass
class World:
    """The state of everything but the slots, which are on the server."""

    seed: int
    rules: Rules
    valkey: redis.Redis
    agents: dict[str, AgentRow] = field(default_factory=dict)
    fleet_limit: int | None = None
    rows: list[Row] = field(default_factory=list)
    messages: list[tuple[Row, uuid.UUID]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._ticks = itertools.count(1)
        self._nth = itertools.count(1)
        self._keys = itertools.count(1)
        self.grants: dict[uuid.UUID, Grant] = {}
        #: Work that goes on at an agent, by the token it was begun under.
        self.live: dict[uuid.UUID, Row] = {}
        #: Tokens whose lease ended since their last renewal, and those for which that ever happened.
        self.lapsed: set[uuid.UUID] = set()
        self.ever_lapsed: set[uuid.UUID] = set()
        #: Local runs that go on because their row, asked instead of the store, said so.
        self.carried_by_row: set[uuid.UUID] = set()
        self.terminated: set[uuid.UUID] = set()
        self.most_slots = 1
        #: Whether messages and answers get lost, and whether workers may be cut off from the store.
        self.lose_messages = False
        self.lose_answers = False
        self.unreachable = False
        self.waits_for_rebuild = 0
        self.overtakings = 3
        #: How runs end, each as likely as the others.
        self.ways = WAYS

    # -- Small ---------------------------------------------------------------------------------------------------------
    def tick(self) -> int:
        """The next moment."""
        return next(self._ticks)

    def new_uuid(self) -> uuid.UUID:
        """An id or a token, the same in every run of a seed."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def new_row(self, *, http: bool | None, crowded: bool) -> Row:
        """A request that has no row yet; `crowded`: all of one session."""
        session = self.random.choice((None, None, 1, 2)) if not crowded else 1
        is_http = self.random.random() < 0.5
        return Row(
            id=self.new_uuid(),
            key=next(self._keys),
            agent="a" if session == 1 else "b" if session == 2 and "b" in self.agents else self.random.choice(list(self.agents)),
            http=is_http if http is None else http,
            priority=self.random.choice((5, 5, 5, 8)),
            session=session,
        )

    @staticmethod
    def lease(row: Row, token: uuid.UUID) -> Lease:
        """The row's right to a slot under `token`."""
        return Lease(agent=row.agent, execution_id=row.id, token=token, timeout_seconds=900, number=row.number)

    def fail(self, what: str) -> None:
        """Report a broken invariant."""
        rows = [(r.key, r.agent, r.status, r.startable, str(r.token)[:4], r.started, r.begun) for r in self.rows]
        raise Violation(f"{what} | seed={self.seed} rows={rows} live={[r.key for r in self.live.values()]}")

    def publish(self, row: Row, token: uuid.UUID) -> None:
        """Send the message that `row` may start; it may get lost, or come twice."""
        if self.lose_messages and self.random.random() < 0.1:
            return
        self.messages += [(row, token)] * self.random.choice((1, 1, 1, 1, 1, 1, 1, 2))

    def answer_is_lost(self) -> bool:
        """Whether the answer to a script that was run gets lost."""
        return self.lose_answers and self.random.random() < 0.1

    def agent_can_be_asked(self) -> bool:
        """Whether an HTTP agent answers."""
        return self.random.random() < 0.7

    # -- The table -----------------------------------------------------------------------------------------------------
    def look(self, agent: str, skip: Iterable[Row] = ()) -> Gate:
        """The limits in force and the head of the line."""
        of = self.agents[agent]
        return Gate(limit=of.limit, fleet_limit=self.fleet_limit, paused=of.paused, head=self._head(agent, skip), at=self.tick())

    def _head(self, agent: str, skip: Iterable[Row] = ()) -> Row | None:
        line = [row for row in self._line(agent) if row not in skip]
        return min(line, key=lambda row: row.place if self.rules.line_order else row.key, default=None)

    def _line(self, agent: str) -> list[Row]:
        return [row for row in self.rows if row.agent == agent and row.status == QUEUED and row.startable]

    def session_is_unfinished(self, row: Row) -> bool:
        """Whether the row's session has a row that has not ended."""
        return any(other.session == row.session and other.status not in TERMINAL for other in self._of_session(row))

    def _of_session(self, row: Row) -> list[Row]:
        return [other for other in self.rows if row.session is not None and other.session == row.session and other is not row]

    def _session_runs(self, row: Row) -> bool:
        """The partial unique index."""
        return self.rules.one_run_a_session and any(o.status == RUNNING or o.token for o in self._of_session(row))

    def insert_running(self, row: Row, token: uuid.UUID, number: int) -> bool:
        """The row of a request that holds a slot already."""
        if self._session_runs(row):
            return False
        row.status, row.token, row.number, row.queued_at = RUNNING, token, number, self.tick()
        row.granted_at = row.queued_at
        self.rows.append(row)
        if self.rules.newcomer_holds_session_back:
            for other in self._of_session(row):
                other.startable = False
        return True

    def enqueue(self, row: Row) -> None:
        """Put a request in line."""
        row.startable = not self.rules.one_run_a_session or row.session is None or not self.session_is_unfinished(row)
        row.status, row.queued_at = QUEUED, self.tick()
        row.in_line_since = row.queued_at
        self.rows.append(row)

    def claim(self, row: Row, token: uuid.UUID, number: int) -> bool:
        """`queued → running` under `token`."""
        if self.rules.claim_needs_queued and not (row.status == QUEUED and row.startable and not row.cancel):
            return False
        if self._session_runs(row):
            return False
        if row.status in TERMINAL:
            self.fail(f"ENDED row {row.key} runs again")
        row.status, row.token, row.number, row.granted_at = RUNNING, token, number, self.tick()
        return True

    def undo_claim(self, row: Row, token: uuid.UUID) -> bool:
        """Back to its place in line, if it never started."""
        if row.status != RUNNING or row.started or (self.rules.undo_needs_token and row.token != token):
            return False
        row.status, row.token, row.number, row.in_line_since = QUEUED, None, 0, self.tick()
        row.startable = True
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

    def finish(self, row: Row, token: uuid.UUID, *, ok: bool) -> bool:
        """Write the result; the row lets go of its slot."""
        if self.rules.finish_fenced and (row.status != RUNNING or row.token != token):
            return False
        self._end(row, SUCCESS if ok else FAILED)
        row.token = None
        self._let_next_start(row)
        return True

    def finish_and_claim(self, row: Row, token: uuid.UUID, next_token: uuid.UUID, *, ok: bool) -> tuple[bool, Row | None]:
        """`finish`, and the claim of the next startable row in the same transaction."""
        at = self.tick()
        if not self.finish(row, token, ok=ok):
            return False, None
        lost: list[Row] = []
        while (head := self._head(row.agent, lost)) is not None:
            if self.claim(head, next_token, 0):
                self.check_order(head, at, newcomer=False, passed=lost)
                return True, head
            lost.append(head)
        return True, None

    def fence(self, row: Row, token: uuid.UUID) -> bool:
        """Fail a started run that was lost; its token stays until its work is known to be over."""
        if row.status != RUNNING or row.token != token or not row.started:
            return False
        self._end(row, FAILED)
        if not self.rules.token_kept_until_stopped:
            row.token = None
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
        if row.status != QUEUED:
            return False
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
        of_session = self._of_session(row)
        if not self.rules.next_of_session_startable or any(other.token for other in of_session):
            return
        first = min((other for other in of_session if other.status == QUEUED), key=lambda o: (o.queued_at, o.key), default=None)
        if first is not None and not first.startable:
            first.startable, first.in_line_since = True, self.tick()

    # -- Grants and order ----------------------------------------------------------------------------------------------
    def granted(self, token: uuid.UUID, limit: int) -> None:
        """Remember a grant and the limit it read; a token that lost its slot with the store may be granted one again."""
        self.grants[token] = Grant(nth=next(self._nth), limit=limit)
        self.most_slots = max(self.most_slots, limit)

    def check_order(self, row: Row, looked_at: int, *, newcomer: bool, passed: Iterable[Row] = ()) -> None:
        """Nobody who was startable in line when this admission looked, and still is, is passed over by it."""
        for other in self._line(row.agent):
            if other is row or other in passed or other.in_line_since >= looked_at:
                continue
            if newcomer or other.place < row.place:
                self.fail(f"ORDER row {row.key} before {other.key}")

    # -- The agents ----------------------------------------------------------------------------------------------------
    def begin(self, row: Row, token: uuid.UUID) -> bool:
        """Begin the work, unless the agent was told to end it before, or (locally) its lease has ended."""
        if row.http and row.id in self.terminated:
            return False
        if not row.http and token in self.lapsed and self.rules.lease_checked_before_work:
            return False
        row.begun += 1
        self.live[token] = row
        if row.begun > 1:
            self.fail(f"TWICE row {row.key}")
        if row.session is not None and sum(other.session == row.session for other in self.live.values()) > 1:
            self.fail(f"SESSION {row.session} runs twice")
        if token not in self.grants:
            self.fail(f"UNGRANTED row {row.key}")
        of_agent = [t for t, other in self.live.items() if other.agent == row.agent]
        latest = max((self.grants[t] for t in of_agent), key=lambda grant: grant.nth)
        if len(of_agent) > latest.limit:
            self.fail(f"OVER limit {latest.limit} of {row.agent}")
        if self.fleet_limit is not None and len(self.live) > self.fleet_limit:
            self.fail(f"OVER fleet {self.fleet_limit}")
        return True

    def end(self, token: uuid.UUID) -> None:
        """The work is over."""
        self.live.pop(token, None)

    def terminate(self, row: Row) -> None:
        """Tell an HTTP agent to end an execution; it refuses that id from now on."""
        if self.rules.agent_remembers_terminate:
            self.terminated.add(row.id)
        for token in [token for token, other in self.live.items() if other is row]:
            self.end(token)

    # -- Leases --------------------------------------------------------------------------------------------------------
    def renewed(self, token: uuid.UUID) -> None:
        """The store has answered `ok` to this run."""
        self.lapsed.discard(token)
        self.carried_by_row.discard(token)

    def lapse(self, holder: slots.FleetHolder) -> None:
        """A lease ends. A local run's supervisor has ended its work before, unless its row carried it on."""
        seconds, _ = self.valkey.time()
        self.valkey.zadd(keys.leases(), {f"{holder.agent}:{holder.execution_id}": seconds - 1}, xx=True)
        if holder.phase == slots.Phase.GRANTED:
            return
        self.lapsed.add(holder.token)
        self.ever_lapsed.add(holder.token)
        row = self.live.get(holder.token)
        if row is not None and not row.http and holder.token not in self.carried_by_row and self.rules.local_work_ends_with_lease:
            self.end(holder.token)

    def stop_carrying(self, token: uuid.UUID) -> None:
        """What a row carried on ends: nobody has said `ok` for long enough."""
        self.carried_by_row.discard(token)
        self.lapsed.add(token)
        self.ever_lapsed.add(token)
        row = self.live.get(token)
        if row is not None and not row.http:
            self.end(token)

    def holders(self) -> list[slots.FleetHolder] | None:
        """Every holder; None while a rebuild is due."""
        try:
            return slots.holders_of_fleet()
        except SlotsUnavailable:
            return None

    # -- The store -----------------------------------------------------------------------------------------------------
    def open_store(self) -> None:
        """A store rebuilt from no rows."""
        self.valkey.flushdb()
        nonce = self.new_uuid()
        if not (slots.rebuild_begin(nonce=nonce) and slots.rebuild_open(nonce=nonce)):
            self.fail("STORE")
        slots.reclaim(lease_seconds=LEASE_SECONDS)  # the first pass would give every lease that lapses a fresh one

    def snapshot(self) -> Snapshot:
        """What a save to disk would keep."""
        found = sorted(self.valkey.scan_iter(match="agent:*", count=1000))
        return {key: (max(self.valkey.pttl(key), 0), data) for key in found if (data := self.valkey.dump(key)) is not None}

    def restore(self, saved: Snapshot) -> None:
        """A kill and a restart from `saved`: the keys of then, under another run of the server."""
        self.valkey.flushdb()
        for key, (milliseconds, data) in saved.items():
            self.valkey.restore(key, milliseconds, data)
        for key in (keys.epoch(), keys.rebuild()):
            if (value := self.valkey.get(key)) is not None:
                self.valkey.set(key, OTHER_RUN.encode() + value[len(OTHER_RUN) :], keepttl=True)

    def rebuild_waited_for(self) -> None:
        """Somebody found another rebuild under way. One that stands still for the life of its nonce is overtaken."""
        self.waits_for_rebuild += 1
        stood_still = self.waits_for_rebuild > MOST_WAITS
        if not stood_still and self.overtakings and self.random.random() < 0.1:
            self.overtakings -= 1
            stood_still = True
        if stood_still:
            self.waits_for_rebuild = 0
            self.valkey.delete(keys.rebuild())

    # -- At rest -------------------------------------------------------------------------------------------------------
    def check_numbers(self) -> None:
        """Live slot numbers are distinct, within 1..the largest limit there was, and no more than that."""
        for name in self.agents:
            numbers = [holder.number for holder in slots.state(name).holders]
            if len(set(numbers)) != len(numbers) or any(not 1 <= number <= self.most_slots for number in numbers):
                self.fail(f"NUMBERS {numbers} of {name}")

    def check_agreement(self) -> None:
        """Holders are the rows with a token, and those are the rows that run."""
        held = {(holder.execution_id, holder.token) for holder in slots.holders_of_fleet()}
        tokens = {(row.id, row.token) for row in self.rows if row.token}
        if held != tokens or any(row.status != RUNNING for row in self.rows if row.token):
            self.fail(f"APART {len(held)} holders, {len(tokens)} tokens")
        self.check_numbers()

    def check_nobody_waits(self) -> None:
        """No startable row beside a free slot."""
        for name, of in self.agents.items():
            full = slots.states([name])[name].active >= of.limit
            if self._line(name) and not full and (self.fleet_limit is None or slots.fleet_count() < self.fleet_limit):
                self.fail(f"IDLE {name}")

    def at_rest(self) -> bool:
        """Everything accepted has ended, and nothing is held."""
        return all(row.status in TERMINAL and row.token is None for row in self.rows) and not self.live and self.holders() == []
