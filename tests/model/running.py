"""From a message to the work, and from its end to the next in line."""

import uuid
from collections.abc import Generator

from capacity.slots import HandoverOutcome, RenewOutcome

from .asking import STEP, WORKING, Actor, Step, asked, handover, release, renew
from .rows import RUNNING, Row
from .taking import drain, freed, withdraw
from .world import World

Begun = tuple[Row, uuid.UUID] | None


def worker(world: World, row: Row, token: uuid.UUID) -> Actor:
    """A worker thread with one message, and after it what it takes over in place."""
    begun = yield from begin_run(world, row, token)
    while begun is not None:
        row, token = begun
        ok = yield from perform(world, row, token)
        if ok is None:
            yield from leave_to_repair(world, row, token)
            return
        begun = yield from end_run(world, row, token, ok=ok)


# -- Start -----------------------------------------------------------------------------------------------------------
def begin_run(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, Begun]:
    """First renewal, then the row."""
    if row.token != token or row.status != RUNNING or row.started or world.agents[row.agent].deleted.now:
        return None
    yield STEP
    if row.unfit:
        if world.fail_granted(row, token):
            yield STEP
            yield from give_back(world, row, token, written=True)
        return None
    if not world.rules.renewal_before_row:
        return (yield from begin_row_first(world, row, token))
    outcome = yield from asked(world, lambda: renew(world, row, token), int)
    if outcome == RenewOutcome.REFUSED:
        if world.rules.refused_start_undone and world.undo_claim(row, token):
            yield STEP
            yield from withdraw(world, (row, token), row.agent)
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


# -- Work ------------------------------------------------------------------------------------------------------------
def perform(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, bool | None]:
    """The work; whether it ended well. When this returns, it is over; None where its agent doesn't say so."""
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
            if row.http and not world.agent_can_be_asked() and world.rules.unsaid_left_to_repair:
                return None
            if row.http and world.rules.unsaid_left_to_repair:
                world.terminate(row)
            elif row.http:
                return False
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
    if mine and token not in world.ever_lapsed and token not in world.robbed:
        world.fail(f"KILLED row {row.key}: refused while its lease held")
    return "lost"


# -- Give ------------------------------------------------------------------------------------------------------------
def end_run(world: World, row: Row, token: uuid.UUID, *, ok: bool) -> Generator[Step, None, Begun]:
    """Row, then slot: by a handover in place, or by a release and a drain."""
    if world.random.choice(world.ways) == "in place":
        return (yield from end_in_place(world, row, token, ok=ok))
    if not world.rules.row_before_slot:
        yield from release(world, row, token)
        world.finish(row, token, ok=ok)
        yield STEP
        yield from drain(world, row.agent)
        return None
    written = world.finish(row, token, ok=ok)
    yield STEP
    yield from give_back(world, row, token, written=written)
    return None


def leave_to_repair(world: World, row: Row, token: uuid.UUID) -> Actor:
    """Write the outcome and leave the slot taken: the work may go on, and its agent goes on being asked."""
    world.fence(row, token)
    yield STEP


def give_back(world: World, row: Row, token: uuid.UUID, *, written: bool) -> Actor:
    """Release and drain; the work of a row that repair has failed is over, too."""
    if not written:
        world.clear_token(row, token)
        yield STEP
    was_held = yield from release(world, row, token)
    if was_held and world.rules.drain_after_release:
        yield from freed(world, row.agent)


def end_in_place(world: World, row: Row, token: uuid.UUID, *, ok: bool) -> Generator[Step, None, Begun]:
    """Result and claim in one transaction, then the slot in one handover, then the next row's start."""
    next_token = world.new_uuid()
    written, head, gate = world.finish_and_claim(row, token, next_token, ok=ok)
    yield STEP
    if head is not None and head.unfit:
        world.fail_granted(head, next_token)
        head = None
        yield STEP
    if head is None:
        yield from give_back(world, row, token, written=written)
        return None
    outcome, number = yield from handover(world, row, token, head, next_token, gate)
    if world.answer_is_lost():
        outcome = HandoverOutcome.REBUILDING  # it was done, or not: the answer never came
    if outcome != HandoverOutcome.GRANTED and world.rules.ungranted_not_started:
        yield from undo_in_place(world, row, token, head, next_token, known=outcome != HandoverOutcome.REBUILDING)
        return None
    if outcome != HandoverOutcome.GRANTED:
        world.granted(head, next_token, gate)
    started = world.start(head, next_token, number)
    yield STEP
    if started:
        return head, next_token
    if world.rules.unstarted_handover_released and not _runs_elsewhere(world, head, next_token):
        yield from withdraw(world, (head, next_token), head.agent)
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
        yield from freed(world, row.agent)
