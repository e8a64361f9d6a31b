"""What must always be true, checked on plain data: one checker for the model, the flows and the chaos suite.

Whoever looks makes `Seen…` of what it sees, by whatever means it has; no project code is needed for that. Each function
raises `Violation` where its invariant is broken; the first word says which:

    OVER     more at once than the limit
    APART    holders, rows with a token and rows that run are not the same
    NUMBERS  slot numbers that are not distinct, or beyond the largest limit
    LOST     a holder that is lost, or an accepted execution without a row
    IDLE     a startable row beside a free slot
    SESSION  two rows of a session that hold a slot or could start
    STUCK    a session in line of which none may start though none runs
    DEPTH    more in line than submits may have put there
    UNENDED  an accepted execution that has no terminal status, or holds a slot though it has
    TWICE    work that began more than once, or an execution with more than one row
    GHOST    work that began without a row
    UNBEGUN  a success that never began
    ORDER    a row was passed over
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)

QUEUED, RUNNING = "queued", "running"
TERMINAL = ("success", "failed", "cancelled")


class Violation(AssertionError):
    """An invariant broke; the first word says which."""


@dataclass(frozen=True, kw_only=True)
class SeenRow:
    """An execution's row. Ids and tokens may be of any type, but of the same in rows and holders."""

    id: Hashable
    agent: str
    status: str
    slot_token: Hashable | None = None
    slot_number: int | None = None
    startable: bool = True
    started: bool = False
    #: Anything that sorts.
    queued_at: Any = 0
    priority: int = 5
    front: bool = False
    retry: bool = False
    session: Hashable | None = None

    @property
    def place(self) -> tuple[Any, ...]:
        """The order of an agent's line; the smaller is served first."""
        return (not self.front, -self.priority, self.queued_at)

    @property
    def in_line(self) -> bool:
        """Whether a slot is all that it lacks."""
        return self.status == QUEUED and self.startable


@dataclass(frozen=True, kw_only=True)
class SeenHolder:
    """An execution in a slot, as the gate has it."""

    agent: str
    execution_id: Hashable
    token: Hashable
    number: int
    #: granted, started or lost.
    phase: str = "started"


@dataclass(frozen=True, kw_only=True)
class SeenAgent:
    """An agent's settings in force: `limit` is the smaller of the stored one and the ceiling.

    `depth`: the largest since the oldest row in line came; None: not looked at.
    """

    name: str
    limit: int
    paused: bool = False
    depth: int | None = None


@dataclass(frozen=True, kw_only=True)
class SeenWait:
    """A row that was startable in line, and never left it, from one look to another; in seconds of the database's clock."""

    row: SeenRow
    seen_from: float
    seen_until: float


@dataclass(frozen=True, kw_only=True)
class SeenGrant:
    """A row that got a slot at `at`, after it had come to be at `came`; in seconds of the database's clock."""

    row: SeenRow
    came: float
    at: float


# -- At one moment, at rest ------------------------------------------------------------------------------------------
def check_rest(
    *,
    rows: Sequence[SeenRow],
    holders: Sequence[SeenHolder],
    agents: Iterable[SeenAgent],
    most_slots: Mapping[str, int] | None = None,
    fleet_limit: int | None = None,
) -> None:
    """Nobody is on the move, and rows and gate tell the same story.

    `agents`: those to look at; rows and holders of others are counted for the fleet's cap and the sessions only.
    `most_slots`: each agent's largest limit since its oldest holder began; where it isn't named, its limit now.
    """
    looked_at = {agent.name: agent for agent in agents}
    mine = [row for row in rows if row.agent in looked_at]
    held = [holder for holder in holders if holder.agent in looked_at]
    check_one_row_each(rows)
    check_agreement(rows=mine, holders=held)
    check_numbers(holders=held, most_slots={name: agent.limit for name, agent in looked_at.items()} | dict(most_slots or {}))
    check_nobody_waits(rows=mine, holders=holders, agents=looked_at.values(), fleet_limit=fleet_limit)
    check_sessions(rows)
    check_depth(rows=mine, agents=looked_at.values(), most_slots=most_slots or {})


def check_one_row_each(rows: Iterable[SeenRow]) -> None:
    """An execution has one row."""
    if twice := [key for key, count in Counter(row.id for row in rows).items() if count > 1]:
        raise Violation(f"TWICE in the table: {twice}")


def check_agreement(*, rows: Iterable[SeenRow], holders: Sequence[SeenHolder]) -> None:
    """Holders are the rows with a token, and those are the rows that run; a started one is not held as merely granted."""
    having = [row for row in rows if row.slot_token is not None or row.status == RUNNING]
    by_row = Counter((row.agent, row.id, row.slot_token) for row in having)
    by_gate = Counter((holder.agent, holder.execution_id, holder.token) for holder in holders)
    if by_row != by_gate:
        only_rows, only_gate = list((by_row - by_gate).elements()), list((by_gate - by_row).elements())
        raise Violation(f"APART {len(holders)} holders, {len(having)} rows; only rows: {only_rows}, only the gate: {only_gate}")
    if wrong := [row.id for row in having if row.status != RUNNING]:
        raise Violation(f"APART rows that hold a slot without running: {wrong}")
    if lost := [holder.execution_id for holder in holders if holder.phase == "lost"]:
        raise Violation(f"LOST holders: {lost}")
    started = {row.id for row in having if row.started}
    if behind := [holder.execution_id for holder in holders if holder.phase == "granted" and holder.execution_id in started]:
        raise Violation(f"APART started, but held as granted: {behind}")


def check_numbers(*, holders: Iterable[SeenHolder], most_slots: Mapping[str, int]) -> None:
    """Live slot numbers are distinct and within 1..the largest limit there was; so there are no more holders than that."""
    for name, numbers in _grouped(holders, lambda holder: holder.agent).items():
        taken = sorted(holder.number for holder in numbers)
        if len(set(taken)) != len(taken) or any(not 1 <= number <= most_slots[name] for number in taken):
            raise Violation(f"NUMBERS {taken} of {name}, which had {most_slots[name]} at most")


def check_nobody_waits(
    *, rows: Sequence[SeenRow], holders: Sequence[SeenHolder], agents: Iterable[SeenAgent], fleet_limit: int | None = None
) -> None:
    """No startable row beside a free slot of an agent that is not paused, below the fleet's cap."""
    if fleet_limit is not None and len(holders) >= fleet_limit:
        return
    active = Counter(holder.agent for holder in holders)
    for agent in agents:
        waiting = [row.id for row in rows if row.agent == agent.name and row.in_line]
        if waiting and not agent.paused and active[agent.name] < agent.limit:
            raise Violation(f"IDLE {agent.name}: {active[agent.name]} of {agent.limit} in use, startable: {waiting}")


def check_sessions(rows: Iterable[SeenRow]) -> None:
    """One row of a session holds a slot, or the first in line may start; never both, never two."""
    for session, of_session in _grouped((row for row in rows if row.session is not None), lambda row: row.session).items():
        holding = [row.id for row in of_session if row.slot_token is not None or row.status == RUNNING]
        queued = sorted((row for row in of_session if row.status == QUEUED), key=lambda row: row.queued_at)
        startable = [row.id for row in queued if row.startable]
        if len(holding) + len(startable) > 1:
            raise Violation(f"SESSION {session}: {holding} hold a slot, {startable} may start")
        if queued and not holding and startable != [queued[0].id]:
            raise Violation(f"STUCK session {session}: {queued[0].id} is its first, {startable} may start")


def check_depth(*, rows: Iterable[SeenRow], agents: Iterable[SeenAgent], most_slots: Mapping[str, int]) -> None:
    """No more in line than submits may have put there, plus claims that were undone; follow-ups and retries don't count."""
    queued = Counter(row.agent for row in rows if row.status == QUEUED and not row.front and not row.retry)
    for agent in agents:
        if agent.depth is not None and queued[agent.name] > agent.depth + most_slots.get(agent.name, agent.limit):
            raise Violation(f"DEPTH {queued[agent.name]} in the line of {agent.name}, which takes {agent.depth}")


# -- When all is over ------------------------------------------------------------------------------------------------
def check_ended(
    *,
    rows: Sequence[SeenRow],
    accepted: Iterable[Hashable],
    begun: Mapping[Key, int] | None = None,
    ledger_is_whole: bool = True,
) -> None:
    """Every accepted execution has one row with a terminal status and no slot; none began twice.

    `begun`: how often each id's work began, as the agents say; None: nobody kept a ledger. `ledger_is_whole`: it covers all
    of `rows`, so that a success must be in it.
    """
    check_one_row_each(rows)
    by_id = {row.id: row for row in rows}
    if lost := [key for key in dict.fromkeys(accepted) if key not in by_id]:
        raise Violation(f"LOST {len(lost)} accepted executions: {lost[:10]}")
    if open_ones := [(row.id, row.status) for row in rows if row.status not in TERMINAL or row.slot_token is not None]:
        raise Violation(f"UNENDED {len(open_ones)} executions: {open_ones[:10]}")
    if begun is None:
        return
    check_begun(begun)
    if ghosts := [key for key in begun if key not in by_id]:
        raise Violation(f"GHOST work of {ghosts[:10]}, which have no row")
    if ledger_is_whole and (unbegun := [row.id for row in rows if row.status == "success" and not begun.get(row.id)]):  # type: ignore[call-overload]
        raise Violation(f"UNBEGUN successes: {unbegun[:10]}")


def check_begun(begun: Mapping[Key, int]) -> None:
    """The work of each execution begins at most once."""
    if twice := {key: count for key, count in begun.items() if count > 1}:
        raise Violation(f"TWICE begun: {twice}")


# -- While it goes on ------------------------------------------------------------------------------------------------
def check_peak(peaks: Mapping[str, tuple[int, int]]) -> None:
    """`{agent: (most at once, as the agent saw it; its largest limit meanwhile)}`."""
    if over := {name: seen for name, seen in peaks.items() if seen[0] > seen[1]}:
        raise Violation(f"OVER (seen, allowed): {over}")


def check_grant(*, granted: SeenRow, waiting: Iterable[SeenRow], newcomer: bool) -> None:
    """A slot goes to the first in line.

    `waiting`: the rows of its agent that were startable in line without a break from before the admission looked until now.
    A newcomer, which was never in line, passes nobody.
    """
    for other in waiting:
        if other.id != granted.id and other.agent == granted.agent and (newcomer or other.place < granted.place):
            raise Violation(f"ORDER {granted.id} before {other.id}")


def check_nobody_passed(
    *, waits: Iterable[SeenWait], grants: Iterable[SeenGrant], most_slots: Mapping[str, int], apart: float = 0.05
) -> None:
    """No row stood in line while more rows than its agent has slots got one that had come to be later and have a worse place.

    So many may pass while a claim of the row is made and undone, which leaves no trace. Only rows that came after it had been
    seen are compared, so that no process that was frozen between its look and its claim is blamed; `apart`: what the clock's
    readings may be off.
    """
    in_order = {
        agent: sorted(found, key=lambda grant: grant.at) for agent, found in _grouped(grants, lambda grant: grant.row.agent).items()
    }
    for wait in waits:
        granted = in_order.get(wait.row.agent, [])
        first = bisect_right(granted, wait.seen_from, key=lambda grant: grant.at)
        meanwhile = granted[first : bisect_left(granted, wait.seen_until - apart, key=lambda grant: grant.at)]
        passed_by = [grant.row.id for grant in meanwhile if grant.came > wait.seen_from + apart and wait.row.place < grant.row.place]
        if len(passed_by) > most_slots[wait.row.agent]:
            raise Violation(f"ORDER {passed_by} before {wait.row.id} of {wait.row.agent}, which stood in line all the while")


def check_sequence(*, rows: Iterable[SeenRow], began: Sequence[Hashable]) -> None:
    """The order in which an agent with one slot began what stood in its line all the while: by place."""
    by_id = {row.id: row for row in rows}
    for earlier, later in pairwise(by_id[key] for key in began if key in by_id):
        if later.place < earlier.place:
            raise Violation(f"ORDER {earlier.id} before {later.id}")


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    groups: dict[Any, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
