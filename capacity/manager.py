"""The only door to the slots.

`CapacityManager` joins the rows (backlog, below) and the gate (slots, beside): whatever may free a place or add a waiter
ends in `drain`, and what it admitted is returned, never called back. The caller starts it.

Take: slot, then row. Give: row, then slot. A token made here fences both; a step that fails midway leaves a slot whose
token no row carries, or a row whose slot is gone, and repair knows both.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import structlog
from django.db import Error

from backlog import selectors as rows
from backlog import services as backlog
from backlog.drafts import Draft, Overflow, Queued
from backlog.models import Execution
from core.conf import conf
from core.ids import new_token
from core.pauses import pause
from fleet.models import Agent

from . import slots, turns
from .errors import AgentPaused, AtCapacity, FleetAtCapacity, SessionBusy, SlotsUnavailable
from .gate import Gate, Head, gate_of, look
from .leases import Acquired, Admission, Admitted, FleetHolder, Lease, LostHolder, Phase, RenewOutcome
from .refilling import refill
from .slots import ForgetOutcome, HandoverOutcome, ReleaseOutcome, TakeOutcome

log = structlog.get_logger(__name__)
T = TypeVar("T")

#: How long a caller waits for a rebuild that somebody else carries out.
REBUILD_PATIENCE_SECONDS = 2.0
REBUILD_PAUSE_SECONDS = 0.05


class Reject:
    """Overflow policy: whoever finds no slot is refused."""

    def __call__(self, *, agent: Agent, draft: Draft, full: Exception) -> Queued:
        """Raise the refusal."""
        raise full


class CapacityManager:
    """The facade. It keeps nothing between calls; any number of processes use it at once."""

    # -- Take ----------------------------------------------------------------------------------------------------------

    def acquire(self, *, agent: Agent, draft: Draft, overflow: Overflow) -> Acquired:
        """Give `draft` a slot and a row, or let `overflow` decide.

        `agent` was read through `gate.gated` by this request. Raises what `overflow` raises, `KeyTaken`, and
        `SlotsUnavailable`.
        """
        gate = gate_of(agent)
        refusal = self._refusal_before_asking(gate=gate, draft=draft)
        if refusal is None:
            lease, refusal = self._take(gate=gate, draft=draft)
            if lease is not None and self._insert(gate=gate, draft=draft, lease=lease):
                return Acquired(outcome=Admitted(lease=lease), admissions=(Admission(lease=lease),))
        else:
            # The gate was not asked yet: a request that is refused because it is out of reach must leave no row.
            slots.step_version([agent.name])
        queued = overflow(agent=agent, draft=draft, full=refusal or SessionBusy(session_id=draft.session_id))
        return Acquired(outcome=queued, admissions=self._moved_up(agent))

    def _moved_up(self, agent: Agent) -> tuple[Admission, ...]:
        """What the line's new row made possible. The row is accepted: whatever fails from here on, the sweep drains."""
        try:
            return self.drain(agent.pk, announce=True)
        except (SlotsUnavailable, Error) as error:
            log.warning("backlog.left_to_sweep", agent=agent.name, error=str(error))
            return ()

    def _refusal_before_asking(self, *, gate: Gate, draft: Draft) -> Exception | None:
        """No barging: with a startable row in line nobody new takes a slot directly, even if one is free.

        Under a cap a place is the fleet's, and the line is everybody's who could run but for that place.
        """
        if gate.paused:
            return AgentPaused(agent=gate.agent.name)
        if gate.fleet_limit is not None and self._fleet_has_no_place(gate):
            return FleetAtCapacity.of(gate)
        if gate.head is not None:
            return AtCapacity.of(gate)
        if draft.session_id is not None and rows.unfinished_of_session(draft.session_id).exists():
            return SessionBusy(session_id=draft.session_id)
        return None

    def _fleet_has_no_place(self, gate: Gate) -> bool:
        def ask() -> bool | None:
            try:
                return turns.has_no_place(gate)
            except SlotsUnavailable:
                return None  # emptied, or out of reach: the refill tells

        return bool(self._asked(ask, rebuilding=lambda told: told is None))

    def _take(self, *, gate: Gate, draft: Draft) -> tuple[Lease | None, Exception | None]:
        lease = Lease(agent=gate.agent.name, execution_id=draft.id, token=new_token(), timeout_seconds=draft.timeout_seconds)
        taken = self._slot_for(gate=gate, lease=lease, preview=preview(draft.message))
        if taken.outcome in (TakeOutcome.ACQUIRED, TakeOutcome.HELD):
            return _numbered(lease, taken.number), None
        if taken.outcome == TakeOutcome.FULL_FLEET:
            return None, FleetAtCapacity.of(gate)
        return None, AtCapacity.of(gate)

    def _slot_for(self, *, gate: Gate, lease: Lease, preview: str, announce: bool = False) -> slots.Taken:
        return self._asked(
            lambda: slots.acquire(lease=lease, limit=gate.limit, fleet_limit=gate.fleet_limit, preview=preview, announce=announce),
            rebuilding=lambda taken: taken.outcome == TakeOutcome.REBUILDING,
        )

    def _insert(self, *, gate: Gate, draft: Draft, lease: Lease) -> bool:
        """Whether the row that holds the slot exists now; the slot is given back on every other path."""
        row: Execution | None = None
        try:
            row = backlog.insert_running(agent=gate.agent, draft=draft, token=lease.token, number=lease.number)
        finally:
            if row is None:
                self._give_back(lease)
        return row is not None

    # -- Give ----------------------------------------------------------------------------------------------------------

    def release(self, *, agent_id: int, lease: Lease) -> tuple[Admission, ...]:
        """Free the lease's slot and fill it from the line; a late, double or foreign release frees nothing."""
        freed = self._asked(lambda: slots.release(lease=lease), rebuilding=lambda answer: answer == ReleaseOutcome.REBUILDING)
        return self.drain(agent_id) if freed == ReleaseOutcome.RELEASED else ()

    def handover(self, *, gate: Gate, done: Lease, following: Lease, preview: str) -> Lease | None:
        """Move a slot from an ended run to the row claimed for it, with its first lease: nobody sees the slot free.

        Returns the following lease with its number, or None where the claim must be undone. Both tokens are released then.
        """
        try:
            handed = slots.handover(
                done=done, following=following, limit=gate.limit, fleet_limit=gate.fleet_limit, paused=gate.paused,
                started=True, lease_seconds=conf.lease_seconds, preview=preview,
            )  # fmt: skip
        except SlotsUnavailable:
            # Perhaps it was done and the answer lost: neither token may hold a slot when the claim is undone.
            log.warning("slots.handover_unknown", agent=done.agent, execution_id=str(following.execution_id))
            return None
        if handed.outcome == HandoverOutcome.GRANTED:
            return _numbered(following, handed.number)
        return None

    def undo_claim(self, *, agent_id: int, done: Lease, following: Lease) -> tuple[Admission, ...]:
        """Put a claimed row back in its place, free both tokens' slots, and fill what is free."""
        undone = backlog.undo_claim(execution_id=following.execution_id, token=following.token)
        self._free(done)
        # A worker that got a second message may have started it meanwhile: the slot is that run's then.
        if undone or not rows.carries(execution_id=following.execution_id, token=following.token):
            self._free(following)
        self.touch_agent(agent_id)
        return self.drain(agent_id)

    def withdraw(self, *, agent_id: int, lease: Lease | None) -> tuple[Admission, ...]:
        """After a row was cancelled or failed: free its slot if it had one, and let the line move up."""
        if lease is not None:
            self._free(lease)
        self.touch_agent(agent_id)
        return self.drain(agent_id)

    def free(self, *, lease: Lease, agent_id: int | None, phase: Phase | None = None) -> tuple[bool, tuple[Admission, ...]]:
        """Free a slot that repair found (only while it is in `phase`), and fill it where its agent is known.

        Returns whether it was still held so, and the admissions.
        """
        freed = self._asked(lambda: slots.release(lease=lease, phase=phase), rebuilding=lambda answer: answer == ReleaseOutcome.REBUILDING)
        known = agent_id or Agent.objects.filter(name=lease.agent, deleted_at=None).values_list("pk", flat=True).first()
        return freed == ReleaseOutcome.RELEASED, () if known is None else self.drain(known)

    def holders(self) -> list[FleetHolder]:
        """Every holder of the fleet; raises `SlotsUnavailable` while the gate must be rebuilt."""
        return slots.holders_of_fleet()

    def resize(self, *, agent_id: int) -> tuple[Admission, ...]:
        """After a limit changed (or a pause ended): show it and fill what it opened."""
        self.touch_agent(agent_id)
        return self.drain(agent_id)

    def resize_fleet(self) -> tuple[Admission, ...]:
        """After the ceiling or the cap changed: show it on every agent and fill what it opened."""
        self.refill()  # of no effect while the gate is whole
        slots.step_version(list(Agent.objects.filter(deleted_at=None).values_list("name", flat=True)))
        return self.drain_all()

    def touch_agent(self, agent_id: int) -> None:
        """Step the agent's version, so that screens read it again."""
        slots.step_version(list(Agent.objects.filter(pk=agent_id, deleted_at=None).values_list("name", flat=True)))

    def forget(self, name: str) -> bool:
        """Whether nothing is kept of the deleted agent `name` any more; False while one of its runs holds a slot.

        A living agent of that name shares the keys: they are its own then, and not to be forgotten.
        """
        if Agent.objects.filter(name=name, deleted_at=None).exists():
            return True
        return self._asked(lambda: slots.forget(name), rebuilding=lambda told: told == ForgetOutcome.REBUILDING) == ForgetOutcome.FORGOTTEN

    # -- Drain ---------------------------------------------------------------------------------------------------------

    def drain(self, agent_id: int, *, announce: bool = False) -> tuple[Admission, ...]:
        """Give free slots to the agent's startable rows, first in line first, until there is no slot or no row.

        Under a fleet cap they go to whose turn it is, this agent or another. Once something was admitted it raises no more:
        those rows are to be started, and the sweep does the rest. With `announce` the agent's version is stepped also where
        nothing was admitted: its line has changed.
        """
        gate = look(agent_id)
        if (turns.fleet_cap() if gate is None else gate.fleet_limit) is None:
            return tuple(self._drain_own(agent_id, gate=gate, announce=announce))
        if announce and gate is not None:
            slots.step_version([gate.agent.name])
        return self._drain_in_turn()

    def _drain_own(self, agent_id: int, *, gate: Gate | None, most: int | None = None, announce: bool = False) -> list[Admission]:
        """What the agent's own line gets, at most `most`; `gate` is the look just taken."""
        admitted: list[Admission] = []
        with _cut_short(admitted):
            self._fill(agent_id, admitted, gate=gate, most=most, announce=announce)
        return admitted

    def _fill(self, agent_id: int, admitted: list[Admission], *, gate: Gate | None, most: int | None, announce: bool) -> None:
        passed: Counter[uuid.UUID] = Counter()
        untold = announce
        while gate is not None and not gate.paused:
            head = gate.head if gate.head is None or passed[gate.head.id] < 2 else _head_past(agent_id, passed)
            if head is None:
                break
            lease, goes_on = self._admit(gate=gate, head=head, passed=passed, announce=announce)
            if lease is not None:
                admitted.append(Admission(lease=lease))
            if not goes_on:
                untold = False
                break
            if len(admitted) == most:
                break
            gate = look(agent_id)
        if admitted or (untold and gate is not None):
            slots.step_version([admitted[0].lease.agent if gate is None else gate.agent.name])

    def _admit(self, *, gate: Gate, head: Head, passed: Counter[uuid.UUID], announce: bool) -> tuple[Lease | None, bool]:
        """The head's lease if it was admitted, and whether to look for another row."""
        lease = Lease(agent=gate.agent.name, execution_id=head.id, token=new_token(), timeout_seconds=head.timeout_seconds)
        taken = self._slot_for(gate=gate, lease=lease, preview=head.preview, announce=announce)
        if taken.outcome == TakeOutcome.BUSY:
            passed[head.id] = 2
            return None, True
        if taken.outcome not in (TakeOutcome.ACQUIRED, TakeOutcome.HELD):
            return None, False
        claimed = False
        try:
            claimed = backlog.claim(execution_id=head.id, token=lease.token, number=taken.number)
        finally:
            if not claimed:
                self._give_back(lease)
        if claimed:
            return _numbered(lease, taken.number), True
        # Looked at once more: whoever was first may have put it back, and nobody else be left to see it. Twice lost, it can't be
        # claimed while it stays at the head.
        passed[head.id] += 1
        return None, True

    def drain_all(self) -> tuple[Admission, ...]:
        """Drain every agent that has startable rows and, as far as the gate knows, a free slot; as `drain` it keeps what it has.

        Under a fleet cap places go round, one at a time, to the agent that was served the longest ago.
        """
        if turns.fleet_cap() is not None:
            return self._drain_in_turn()
        admitted: list[Admission] = []
        with _cut_short(admitted):
            for turn in turns.with_room():
                admitted += self._drain_own(turn.agent_id, gate=look(turn.agent_id))
        return tuple(admitted)

    def _drain_in_turn(self) -> tuple[Admission, ...]:
        admitted: list[Admission] = []
        with _cut_short(admitted):
            while self._go_round(admitted):
                pass
        return tuple(admitted)

    def _go_round(self, admitted: list[Admission]) -> bool:
        """Give a place to each agent in turn; whether another round may give more."""
        goes_on = False
        for turn in turns.with_room():
            gate = look(turn.agent_id)
            if gate is not None and gate.fleet_limit is not None and slots.fleet_count() >= gate.fleet_limit:
                return False
            if not turns.take(turn):
                goes_on = True  # served since the look: its place in the turn is another now
            elif served := self._serve(turn, gate=gate):
                admitted += served
                goes_on = True
        return goes_on

    def _serve(self, turn: turns.Turn, *, gate: Gate | None) -> list[Admission]:
        """What the agent whose turn was taken gets: one place, or its turn back."""
        served: list[Admission] = []
        try:
            served = self._drain_own(turn.agent_id, gate=gate, most=1)
        finally:
            if not served:
                turns.put_back(turn)
        return served

    # -- Leases --------------------------------------------------------------------------------------------------------

    def renew(self, leases: Sequence[Lease]) -> list[RenewOutcome]:
        """Renew leases; the first renewal of one starts it. `REBUILDING`: carry on and ask again."""
        return slots.renew(leases=leases, lease_seconds=conf.lease_seconds)

    def reclaim_stale(self) -> list[LostHolder]:
        """Mark the leases that ended and return every lost holder; frees nothing."""
        reclaimed = slots.reclaim(lease_seconds=conf.lease_seconds)
        return reclaimed.lost

    def note_out_of_reach(self) -> None:
        """The gate was out of reach: workers could not renew either, so the next reclaim gives each started run a fresh lease."""
        slots.note_out_of_reach()

    def _free(self, lease: Lease) -> None:
        """Release without a drain. While the gate is rebuilt it asks again: the rebuild may have read the row that let go."""
        self._asked(lambda: slots.release(lease=lease), rebuilding=lambda answer: answer == ReleaseOutcome.REBUILDING)

    def _give_back(self, lease: Lease) -> None:
        """Release a token that no row carries: a rebuild doesn't write it, and where the gate can't be asked, repair finds it."""
        try:
            slots.release(lease=lease)
        except SlotsUnavailable:
            log.warning("slots.release_failed", agent=lease.agent, execution_id=str(lease.execution_id))

    # -- Rebuild -------------------------------------------------------------------------------------------------------

    def rebuild(self) -> tuple[Admission, ...]:
        """Fill an emptied gate from the rows, then every line; nothing where the gate is whole or somebody else is at it."""
        return self.drain_all() if self.refill() else ()

    def refill(self) -> bool:
        """Whether this call has filled the emptied gate from the rows.

        Rows that never started go back in line, every other row with a token gets its slot back. Any number may try at
        once: one nonce wins, and only its holder opens the gate.
        """
        return refill()

    def _asked(self, ask: Callable[[], T], *, rebuilding: Callable[[T], bool]) -> T:
        """The gate's answer. While it is empty: fill it, or wait a little for whoever does, then ask again.

        The lines that a refill opens are drained by the sweep: an admission made here could not be returned.
        """
        patience = time.monotonic() + REBUILD_PATIENCE_SECONDS
        while rebuilding(answer := ask()):
            if self.refill():
                continue
            if time.monotonic() > patience:
                raise SlotsUnavailable
            pause(REBUILD_PAUSE_SECONDS)
        return answer


@contextmanager
def _cut_short(admitted: list[Admission]) -> Iterator[None]:
    """An error ends the drain; it is raised only where nothing was admitted, for what was is to be started."""
    try:
        yield
    except (SlotsUnavailable, Error) as error:
        if not admitted:
            raise
        log.warning("drain.cut_short", admitted=len(admitted), error=str(error))


def _head_past(agent_id: int, passed: Counter[uuid.UUID]) -> Head | None:
    over = {execution_id for execution_id, times in passed.items() if times > 1}
    row = rows.startable(agent_id).exclude(pk__in=over).only("id", "timeout_seconds", "message").first()
    return None if row is None else Head(id=row.pk, timeout_seconds=row.timeout_seconds, preview=preview(row.message))


def _numbered(lease: Lease, number: int) -> Lease:
    return replace(lease, number=number)


def preview(message: str) -> str:
    """What a screen shows of a message."""
    return message[: rows.PREVIEW_CHARACTERS]
