"""What the processes do, as generators: a `yield` is where anything else may happen, and where a crash cuts them off."""

import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from capacity import keys, slots
from capacity.slots import HandoverOutcome, Phase, ReclaimOutcome, ReleaseOutcome, RenewOutcome, TakeOutcome

from .world import LEASE_SECONDS, RUNNING, TERMINAL, Row, World

T = TypeVar("T")
#: A step; True while the actor waits for an agent's work, which may last.
Step = bool
Actor = Generator[Step, None, None]
WORKING = True
STEP = False
#: A drain that loses the same row this often in one go will not end while that row's session runs.
MOST_LOSSES = 4


# -- The store, asked until it answers -------------------------------------------------------------------------------
def asked(world: World, ask: Callable[[], T], outcome: Callable[[T], int]) -> Generator[Step, None, T]:
    """The store's answer; while it is to be rebuilt, rebuild it or wait for whoever does."""
    while True:
        if world.answer_is_lost():
            ask()  # the client asks a second time
            yield STEP
        answer = ask()
        yield STEP
        if outcome(answer) != 0:
            return answer
        yield from refill(world)


def acquire(world: World, row: Row, token: uuid.UUID, limit: int) -> Generator[Step, None, slots.Taken]:
    lease = world.lease(row, token)

    def ask() -> slots.Taken:
        taken = slots.acquire(lease=lease, limit=limit, fleet_limit=world.fleet_limit, preview="x")
        if taken.outcome == TakeOutcome.ACQUIRED:
            world.granted(token, limit)
        return taken

    return (yield from asked(world, ask, lambda taken: taken.outcome))


def release(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, bool]:
    """Whether it freed a slot."""
    lease = world.lease(row, token)
    if not world.rules.release_until_answered:
        once = slots.release(lease=lease)
        yield STEP
        return once == ReleaseOutcome.RELEASED
    answer = yield from asked(world, lambda: slots.release(lease=lease), int)
    return answer == ReleaseOutcome.RELEASED


# -- Take ------------------------------------------------------------------------------------------------------------
def submit(world: World, row: Row) -> Actor:
    """A request: straight into a slot where nobody waits and one is free, else in line."""
    gate = world.look(row.agent)
    yield STEP
    waits = gate.paused or (gate.head is not None and world.rules.no_barging)
    if not waits and not (row.session is not None and world.session_is_unfinished(row)):
        token = world.new_uuid()
        taken = yield from acquire(world, row, token, gate.limit)
        if taken.outcome in (TakeOutcome.ACQUIRED, TakeOutcome.HELD):
            if world.insert_running(row, token, taken.number):
                world.check_order(row, gate.at, newcomer=True)
                yield STEP
                world.publish(row, token)
                return
            yield STEP
            yield from release(world, row, token)
    world.enqueue(row)
    yield STEP
    yield from drain(world, row.agent)


def drain(world: World, agent: str) -> Actor:
    """Free slots to startable rows, in order, until there is no slot or no row."""
    passed: list[Row] = []
    lost: Counter[Row] = Counter()
    while max(lost.values(), default=0) < MOST_LOSSES:
        gate = world.look(agent, passed)
        yield STEP
        if gate.head is None or gate.paused:
            return
        head, token = gate.head, world.new_uuid()
        taken = yield from acquire(world, head, token, gate.limit)
        if taken.outcome == TakeOutcome.BUSY:
            passed.append(head)
            if world.rules.busy_left_alone:
                continue
            token = _token_in_slot(world, head) or token
        elif taken.outcome not in (TakeOutcome.ACQUIRED, TakeOutcome.HELD):
            return
        if not (yield from claim(world, head, token, taken.number, gate.at, passed)):
            # Once: whoever was first may put it back. Twice: its session is taken, it can't be claimed now.
            lost[head] += 1
            passed += [head] * (lost[head] == 2 and world.rules.claim_lost_twice_skips_row)
    world.fail(f"SPINS on {agent}")


def _token_in_slot(world: World, row: Row) -> uuid.UUID | None:
    return next((holder.token for holder in world.holders() or () if holder.execution_id == row.id), None)


def claim(world: World, row: Row, token: uuid.UUID, number: int, looked_at: int, passed: Iterable[Row]) -> Generator[Step, None, bool]:
    """Claim a row for the slot taken for it and publish its start; or give this token's slot back and answer False."""
    if world.claim(row, token, number):
        world.check_order(row, looked_at, newcomer=False, passed=passed)
        yield STEP
        world.publish(row, token)
        return True
    yield STEP
    mine = token if world.rules.claim_lost_frees_own_token else row.token or token
    yield from release(world, row, mine)
    return False


# -- Start and work --------------------------------------------------------------------------------------------------
def worker(world: World, row: Row, token: uuid.UUID) -> Actor:
    """A worker thread with one message, and after it what it takes over in place."""
    begun = yield from begin_run(world, row, token)
    while begun is not None:
        row, token = begun
        ok = yield from perform(world, row, token)
        begun = yield from end_run(world, row, token, ok=ok)


Begun = tuple[Row, uuid.UUID] | None


def begin_run(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, Begun]:
    """First renewal, then the row."""
    if not world.rules.renewal_before_row:
        return (yield from begin_row_first(world, row, token))
    outcome = yield from asked(world, lambda: renew(world, row, token), int)
    if outcome == RenewOutcome.REFUSED:
        if world.rules.refused_start_undone:
            world.undo_claim(row, token)
            yield STEP
            yield from drain(world, row.agent)
        return None
    started = world.start(row, token)
    yield STEP
    return (row, token) if started else None


def begin_row_first(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, Begun]:
    """The rule turned round."""
    if not world.start(row, token):
        return None
    yield STEP
    outcome = yield from asked(world, lambda: renew(world, row, token), int)
    if outcome == RenewOutcome.OK:
        return row, token
    world.unstart(row, token)
    yield STEP
    yield from drain(world, row.agent)
    return None


def renew(world: World, row: Row, token: uuid.UUID) -> RenewOutcome:
    """One renewal; what the run knows of its lease changes with the answer."""
    (outcome,) = slots.renew(leases=[world.lease(row, token)], lease_seconds=LEASE_SECONDS)
    if outcome == RenewOutcome.OK:
        world.renewed(token)
    return outcome


def perform(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, bool]:
    """The work; whether it ended well. When this returns, it is over."""
    if row.http and token in world.lapsed:
        return False
    for _ in range(3):
        yield STEP  # it may be frozen between the look at its lease and the request
    if not world.begin(row, token):
        return False
    yield WORKING
    for _ in range(world.random.choice((0, 1, 2, 4, 12))):
        if token not in world.live:
            return False
        if stop := keep(world, row, token):
            yield STEP
            if row.http:
                world.terminate(row)
            world.end(token)
            yield STEP
            return stop == "ended"
        yield WORKING
    ok = token in world.live
    world.end(token)
    yield STEP
    return ok


def keep(world: World, row: Row, token: uuid.UUID) -> str:
    """One look of the keeper: a renewal, or the row; why the run must stop, or ""."""
    mine = row.token == token and row.status == RUNNING
    if world.random.random() < 0.3:
        return "lost" if not mine else "cancelled" if row.cancel else ""
    if not row.http and world.unreachable and world.random.random() < 0.5:
        if mine and token not in world.lapsed:
            world.carried_by_row.add(token)
        return ""
    if renew(world, row, token) != RenewOutcome.REFUSED:
        return ""
    if mine and token not in world.ever_lapsed:
        world.fail(f"KILLED row {row.key}: refused while its lease held")
    return "lost"


# -- Give ------------------------------------------------------------------------------------------------------------
def end_run(world: World, row: Row, token: uuid.UUID, *, ok: bool) -> Generator[Step, None, Begun]:
    """Row, then slot: by a handover in place, by a handover and a message, or by a release and a drain."""
    way = world.random.choice(world.ways)
    if way == "in place":
        return (yield from end_in_place(world, row, token, ok=ok))
    if not world.rules.row_before_slot:
        yield from release(world, row, token)
        world.finish(row, token, ok=ok)
        yield STEP
        yield from drain(world, row.agent)
        return None
    written = world.finish(row, token, ok=ok)
    yield STEP
    if written and way == "message":
        yield from hand_on(world, row, token)
    else:
        yield from give_back(world, row, token, written=written)
    return None


def give_back(world: World, row: Row, token: uuid.UUID, *, written: bool) -> Actor:
    """Release and drain; the work of a row that repair has failed is over, too."""
    if not written:
        world.clear_token(row, token)
        yield STEP
    freed = yield from release(world, row, token)
    if freed and world.rules.drain_after_release:
        yield from drain(world, row.agent)


def hand_on(world: World, row: Row, token: uuid.UUID) -> Actor:
    """Move the slot to the head of the line, then claim it and publish its start."""
    gate = world.look(row.agent)
    yield STEP
    if gate.head is not None:
        head, next_token = gate.head, world.new_uuid()
        outcome, number = yield from handover(world, row, token, head, next_token, gate.limit, paused=gate.paused, started=False)
        if outcome == HandoverOutcome.GRANTED:
            yield from claim(world, head, next_token, number, gate.at, [])
    else:
        yield from release(world, row, token)
    yield from drain(world, row.agent)


def handover(
    world: World, row: Row, token: uuid.UUID, head: Row, next_token: uuid.UUID, limit: int, *, paused: bool, started: bool
) -> Generator[Step, None, tuple[HandoverOutcome, int]]:
    done, following = world.lease(row, token), world.lease(head, next_token)

    def ask() -> slots.Handed:
        handed = slots.handover(
            done=done, following=following, limit=limit, fleet_limit=world.fleet_limit, paused=paused, started=started,
            lease_seconds=LEASE_SECONDS, preview="x",
        )  # fmt: skip
        if handed.outcome == HandoverOutcome.GRANTED:
            world.granted(next_token, limit)
        return handed

    if started:  # a claim stands behind it: any answer but `granted` undoes that
        if world.answer_is_lost():
            ask()
            yield STEP
        handed = ask()
        yield STEP
    else:
        handed = yield from asked(world, ask, lambda answer: answer.outcome)
    return handed.outcome, handed.number


def end_in_place(world: World, row: Row, token: uuid.UUID, *, ok: bool) -> Generator[Step, None, Begun]:
    """Result and claim in one transaction, then the slot in one handover, then the next row's start."""
    gate = world.look(row.agent)
    yield STEP
    next_token = world.new_uuid()
    written, head = world.finish_and_claim(row, token, next_token, ok=ok)
    yield STEP
    if head is None:
        yield from give_back(world, row, token, written=written)
        return None
    outcome, number = yield from handover(world, row, token, head, next_token, gate.limit, paused=gate.paused, started=True)
    if world.answer_is_lost():
        outcome = HandoverOutcome.REBUILDING  # it was done, or not: the answer never came
    if outcome != HandoverOutcome.GRANTED and world.rules.ungranted_not_started:
        yield from undo_in_place(world, row, token, head, next_token, known=outcome != HandoverOutcome.REBUILDING)
        return None
    if outcome != HandoverOutcome.GRANTED:
        world.granted(next_token, gate.limit)
    started = world.start(head, next_token, number)
    yield STEP
    if started:
        return head, next_token
    if world.rules.unstarted_handover_released and not _runs_elsewhere(world, head, next_token):
        yield from release(world, head, next_token)
        yield from drain(world, head.agent)
    return None


def _runs_elsewhere(world: World, row: Row, token: uuid.UUID) -> bool:
    """Whether a second delivery has started the row under this very token: the slot is that run's then."""
    return row.token == token and world.rules.others_start_keeps_slot


def undo_in_place(world: World, row: Row, token: uuid.UUID, head: Row, next_token: uuid.UUID, *, known: bool) -> Actor:
    """The claim is undone on its token, and neither token keeps a slot."""
    if world.rules.ungranted_claim_undone:
        world.undo_claim(head, next_token)
        yield STEP
    yield from release(world, row, token)
    if (known or world.rules.unknown_handover_releases_both) and not _runs_elsewhere(world, head, next_token):
        yield from release(world, head, next_token)
    if world.rules.undo_drains:
        yield from drain(world, row.agent)


# -- Steering --------------------------------------------------------------------------------------------------------
def cancel(world: World, row: Row) -> Actor:
    """Whatever it is doing, its outcome is `cancelled`; only its own slot is freed."""
    while row.status not in TERMINAL:
        status, token, started = row.status, row.token, row.started
        yield STEP
        if status == RUNNING and started and world.rules.cancel_granted_fenced:
            if world.request_cancel(row):
                return
        elif status == RUNNING and token is not None:
            if world.cancel_granted(row, token):
                yield STEP
                if world.rules.cancel_frees_slot:
                    yield from release(world, row, token)
                yield from drain(world, row.agent)
                return
        elif world.cancel_queued(row):
            yield STEP
            yield from drain(world, row.agent)
            return
        yield STEP


def resize(world: World, agent: str, limit: int) -> Actor:
    """A new limit."""
    world.agents[agent].limit = limit
    world.most_slots = max(world.most_slots, limit)
    yield STEP
    if world.rules.raise_drains:
        yield from drain(world, agent)


def pause(world: World, agent: str, *, paused: bool) -> Actor:
    """Pause or resume an agent."""
    world.agents[agent].paused = paused
    yield STEP
    if not paused:
        yield from drain(world, agent)


def sweep(world: World) -> Actor:
    """Fill an emptied store, then drain every line."""
    if world.holders() is None:
        yield STEP
        yield from refill(world)
    for agent in world.agents:
        yield from drain(world, agent)


# -- Repair ----------------------------------------------------------------------------------------------------------
def reconcile(world: World) -> Actor:
    """One pass in both directions, without any patience: what it must wait for in reality may have passed already."""
    if world.rules.lost_repaired:
        yield from repair_lost(world)
    yield from repair_rows_without_slot(world)
    if world.rules.slots_without_row_repaired:
        yield from repair_slots_without_row(world)
    if world.rules.dispatched_again:
        dispatch_again(world)
        yield STEP
    for agent in world.agents:
        yield from drain(world, agent)


def repair_lost(world: World) -> Actor:
    """End what was lost, then free its slot."""
    reclaimed = slots.reclaim(lease_seconds=LEASE_SECONDS)
    yield STEP
    if reclaimed.outcome == ReclaimOutcome.REBUILDING:
        return
    for lost in reclaimed.lost:
        row = _row_of(world, lost.execution_id)
        yield STEP
        if row is None or row.token != lost.token:
            yield from release_found(world, lost.agent, lost.execution_id, lost.token)
        elif row.status == RUNNING and not row.started:
            world.undo_claim(row, lost.token)
            yield STEP
            yield from release(world, row, lost.token)
        else:
            yield from end_lost(world, row, lost.token)


def end_lost(world: World, row: Row, token: uuid.UUID) -> Actor:
    """Fence the row, stop the work, then free the slot."""
    if not world.rules.fence_before_freeing:
        yield from release(world, row, token)
    world.fence(row, token)
    yield STEP
    if row.status == RUNNING or (row.token != token and world.rules.token_kept_until_stopped):
        return
    if world.rules.stop_before_freeing and not (yield from stopped(world, row, token)):
        return
    world.clear_token(row, token)
    yield STEP
    yield from release(world, row, token)
    if not world.rules.stop_before_freeing:
        yield from stopped(world, row, token)


def stopped(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, bool]:
    """Whether a fenced run's work is known to be over now."""
    if row.http:
        if not world.agent_can_be_asked():
            return False  # the next pass will
        world.terminate(row)
        yield STEP
        return True
    while world.rules.row_asked_waits and token in world.carried_by_row:
        if world.random.random() < 0.2:
            world.stop_carrying(token)
        yield STEP
    if token not in world.lapsed and token not in world.carried_by_row:
        world.stop_carrying(token)  # a lease has passed since anybody said `ok`
    yield STEP
    return True


def repair_rows_without_slot(world: World) -> Actor:
    """Rows that hold a token the store doesn't know: rows first, then the store."""
    seen = [(row, row.token, row.started) for row in world.rows if row.token is not None]
    yield STEP
    found = world.holders()
    yield STEP
    if found is None:
        return
    held = {(holder.execution_id, holder.token) for holder in found}
    for row, token, started in seen:
        if token is None or (row.id, token) in held:
            continue
        if started or row.status in TERMINAL:
            yield from end_lost(world, row, token)
        else:
            world.undo_claim(row, token)
            yield STEP


def repair_slots_without_row(world: World) -> Actor:
    """Slots whose token no row carries: the store first, then rows. Freed only in the phase they were seen in."""
    found = world.holders()
    yield STEP
    for holder in found or ():
        row = _row_of(world, holder.execution_id)
        yield STEP
        if row is None or row.token != holder.token:
            ended = row is not None and row.status in TERMINAL
            phase = None if ended or not world.rules.rowless_freed_in_phase else holder.phase
            yield from release_found(world, holder.agent, holder.execution_id, holder.token, phase)


def release_found(world: World, agent: str, execution_id: uuid.UUID, token: uuid.UUID, phase: Phase | None = None) -> Actor:
    """Release what was found in the store, whether or not there is a row."""
    lease = slots.Lease(agent=agent, execution_id=execution_id, token=token, timeout_seconds=0)
    slots.release(lease=lease, phase=phase)
    yield STEP


def dispatch_again(world: World) -> None:
    """Publish the start of granted rows again."""
    for row in world.rows:
        if row.status == RUNNING and not row.started and row.token is not None:
            world.publish(row, row.token)


def _row_of(world: World, execution_id: uuid.UUID) -> Row | None:
    return next((row for row in world.rows if row.id == execution_id), None)


# -- Rebuild ---------------------------------------------------------------------------------------------------------
def refill(world: World) -> Actor:
    """Rebuild the slots from the rows, or learn that somebody else is at it."""
    nonce, began_at = world.new_uuid(), world.tick()
    began = bool(slots.SCRIPTS["rebuild_begin"](keys=[keys.epoch(), keys.rebuild()], args=slots._fence(nonce)))
    yield STEP
    if not began:
        world.rebuild_waited_for()
        return
    world.waits_for_rebuild = 0
    if not (yield from cleared(world, nonce)):
        return
    held = _held(world)
    yield STEP
    if world.rules.rebuild_requeues_unstarted:
        world.undo_all_claims(granted_before=began_at)
        yield STEP
    if world.rules.rebuild_reads_after_requeue:
        held = _held(world)
        yield STEP
    for one in held:
        if not slots.rebuild_write(nonce=nonce, holders=[one], lease_seconds=LEASE_SECONDS):
            return
        world.waits_for_rebuild = 0
        yield STEP
    opened = slots.rebuild_open(nonce=nonce)
    yield STEP
    if opened:
        for agent in world.agents:
            yield from drain(world, agent)


def cleared(world: World, nonce: uuid.UUID) -> Generator[Step, None, bool]:
    """`rebuild_begin`'s removal of keys, a key a step."""
    if world.rules.rebuild_clears:
        for key in list(slots._slot_keys()):
            if not slots._cleared(nonce, [key]):
                return False
            world.waits_for_rebuild = 0
            yield STEP
    return True


def _held(world: World) -> list[slots.Held]:
    unstarted_too = not world.rules.rebuild_requeues_unstarted
    return [
        slots.Held(lease=world.lease(row, row.token), age_seconds=1, remaining_seconds=1199, preview="x")
        for row in world.rows
        if row.token is not None and (row.started or unstarted_too)
    ]


def all_at_once(actors: Iterable[Actor]) -> None:
    """Run actors to their end, one after the other."""
    for actor in actors:
        for _ in actor:
            pass
