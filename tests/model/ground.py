"""What table, ledger and store of a schedule stand on."""

import itertools
import random
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import redis

from tests.invariants import Violation

from .rows import AgentRow, Fleet, Gate, Row
from .rules import Rules

LEASE_SECONDS = 60
WAYS = ("in place", "in place", "release")


@dataclass(frozen=True)
class Grant:
    """A slot that was granted: how many-th grant it was, and the limits that it read."""

    nth: int
    limit: int
    cap: int | None


@dataclass
class Ground:
    """The state of everything but the slots, which are on the server."""

    seed: int
    rules: Rules
    valkey: redis.Redis
    agents: dict[str, AgentRow] = field(default_factory=dict)
    fleet: Fleet = field(default_factory=Fleet)
    rows: list[Row] = field(default_factory=list)
    messages: list[tuple[Row, uuid.UUID]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._ticks = itertools.count(1)
        self._nth = itertools.count(1)
        self._keys = itertools.count(1)
        #: Every request there was, taken in or not.
        self.requests: list[Row] = []
        self.grants: dict[uuid.UUID, Grant] = {}
        #: Work that goes on at an agent, by the token it was begun under.
        self.live: dict[uuid.UUID, Row] = {}
        #: Tokens whose lease ended since their last renewal, and those for which that ever happened.
        self.lapsed: set[uuid.UUID] = set()
        self.ever_lapsed: set[uuid.UUID] = set()
        #: Local runs that go on because their row, asked instead of the store, said so.
        self.carried_by_row: set[uuid.UUID] = set()
        #: Tokens whose slot went while their work went on: freed by force, or vanished from the store.
        self.forced: set[uuid.UUID] = set()
        self.vanished: set[uuid.UUID] = set()
        self.terminated: set[uuid.UUID] = set()
        #: Whether messages and answers get lost, and whether workers may be cut off from the store.
        self.lose_messages = False
        self.lose_answers = False
        self.unreachable = False
        #: Whether the store's keys are gone, or of an earlier life.
        self.emptied = False
        #: Whether a slot was given back without a drain, by a request that was then refused.
        self.left_to_sweep = False
        self.waits_for_rebuild = 0
        self.overtakings = 3
        #: How runs end, each as likely as the others.
        self.ways: tuple[str, ...] = WAYS

    # -- Small ---------------------------------------------------------------------------------------------------------
    def tick(self) -> int:
        """The next moment."""
        return next(self._ticks)

    def new_uuid(self) -> uuid.UUID:
        """An id or a token, the same in every run of a seed."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def fail(self, what: str) -> None:
        """Report a broken invariant."""
        rows = [(r.key, r.agent, r.status, r.startable, str(r.token)[:4], r.started, r.begun) for r in self.rows]
        raise Violation(f"{what} | seed={self.seed} rows={rows} live={[r.key for r in self.live.values()]}")

    def told(self, check: Callable[[], None]) -> None:
        """What the checker finds, with what there was."""
        try:
            check()
        except Violation as violation:
            self.fail(str(violation))

    @property
    def robbed(self) -> set[uuid.UUID]:
        """Tokens of work that goes on, or did, without a slot."""
        return self.forced | self.vanished

    # -- Grants --------------------------------------------------------------------------------------------------------
    def granted(self, row: Row, token: uuid.UUID, gate: Gate) -> None:
        """Remember a grant; a token that lost its slot with the store may be granted one again.

        What the admission went by was in force when it began or since: a cut or a pause that returned before binds it.
        """
        of = self.agents[row.agent]
        self._must_be(gate.limit, of.limit.since(gate.at), f"STALE limit of {row.agent}")
        self._must_be(gate.cap, self.fleet.cap.since(gate.at), "STALE cap")
        self._must_be(False, of.paused.since(gate.at), f"PAUSED {row.agent}")
        self._must_be(False, of.deleted.since(gate.at), f"DELETED {row.agent}")
        self._must_be(False, self.fleet.paused.since(gate.at), "PAUSED fleet")
        self.grants[token] = Grant(nth=next(self._nth), limit=gate.limit, cap=gate.cap)

    def _must_be(self, value: object, allowed: Collection[object], what: str) -> None:
        if value not in allowed:
            self.fail(f"{what}: {value} of {allowed}")
