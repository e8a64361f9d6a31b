"""Repair, without any patience: what it must wait for in reality may have passed already."""

import uuid
from collections.abc import Generator

from capacity import slots
from capacity.slots import Phase, ReclaimOutcome

from .asking import STEP, Actor, Step, release, release_found
from .ground import LEASE_SECONDS
from .rows import RUNNING, TERMINAL, Row
from .steering import finish_deletions
from .taking import drain, drain_all, freed, rebuild, withdraw
from .world import World


def reconcile(world: World) -> Actor:
    """One comparison, in both directions."""
    yield from repair_rows_without_slot(world)
    if world.rules.slots_without_row_repaired:
        yield from repair_slots_without_row(world)


def sweep(world: World) -> Actor:
    """What housekeeping does every other second."""
    if world.emptied:
        yield from rebuild(world)
    if world.rules.lost_repaired:
        yield from repair_lost(world)
    yield from finish_deletions(world)
    yield from drain_all(world)
    if world.rules.dispatched_again:
        dispatch_again(world)
        yield STEP


# -- Lost work -------------------------------------------------------------------------------------------------------
def repair_lost(world: World) -> Actor:
    """Fence what was lost; free the slots of what is known to be over."""
    reclaimed = slots.reclaim(lease_seconds=LEASE_SECONDS)
    yield STEP
    if reclaimed.outcome == ReclaimOutcome.REBUILDING:
        return
    for lost in reclaimed.lost:
        row = world.row_of(lost.execution_id)
        mine, started = row is not None and row.token == lost.token, row is not None and row.started
        yield STEP
        if row is not None and mine:
            yield from retire(world, row, lost.token, started=started)
        else:
            yield from release_found(world, lost)
            yield from freed(world, lost.agent if row is None else row.agent)
    yield from settle_fenced(world)


def retire(world: World, row: Row, token: uuid.UUID, *, started: bool) -> Actor:
    """Out of what held its slot: back in its place if it had not started when it was seen, else fenced."""
    if row.status != RUNNING or row.token != token:
        return
    if started if world.rules.retired_as_seen else row.started:
        if token not in world.ever_lapsed and token not in world.robbed:
            world.fail(f"KILLED row {row.key}: fenced while its lease held")
        if not world.rules.fence_before_freeing:
            yield from release(world, row, token)
            yield from drain(world, row.agent)
        world.fence(row, token)
        yield STEP
    elif world.undo_claim(row, token):
        yield STEP
        yield from withdraw(world, (row, token), row.agent)


def settle_fenced(world: World) -> Actor:
    """Free the slots of ended rows whose work is known to be over."""
    fenced = [(row, row.token) for row in world.rows if row.token is not None and row.status in TERMINAL]
    if not fenced:
        return
    yield STEP
    found = world.holders()
    yield STEP
    if found is None:
        return
    phases = {(holder.execution_id, holder.token): holder.phase for holder in found}
    for row, token in fenced:
        if not world.rules.stop_before_freeing or (yield from is_over(world, row, token, phases.get((row.id, token)))):
            world.clear_token(row, token)
            yield STEP
            yield from withdraw(world, (row, token), row.agent)
            if not world.rules.stop_before_freeing:
                yield from is_over(world, row, token, Phase.LOST)


def is_over(world: World, row: Row, token: uuid.UUID, phase: Phase | None) -> Generator[Step, None, bool]:
    """Whether a fenced run's work is known to be over now; where not, the next pass looks again."""
    if row.http:
        if not world.agent_can_be_asked():
            return False
        world.terminate(row)
        yield STEP
        return True
    if phase not in (None, Phase.LOST):
        return False  # its lease holds
    if phase is None and world.rules.vanished_waits_a_lease:
        if world.random.random() < 0.5:
            return False
        world.stop_carrying(token)  # a lease has passed since the fence, and nobody was told `ok` since
    while world.rules.row_asked_waits and token in world.carried_by_row:
        if world.random.random() < 0.2:
            world.stop_carrying(token)
        yield STEP
    yield STEP
    return True


# -- Rows and slots that don't know each other -----------------------------------------------------------------------
def repair_rows_without_slot(world: World) -> Actor:
    """Rows that hold a token the store doesn't know: rows first, then the store."""
    seen = [(row, row.token, row.started) for row in world.rows if row.token is not None]
    if not seen:
        return
    yield STEP
    found = world.holders()
    yield STEP
    if found is None:
        return
    held = {(holder.execution_id, holder.token) for holder in found}
    for row, token, started in seen:
        if token is not None and (row.id, token) not in held:
            yield from retire(world, row, token, started=started)


def repair_slots_without_row(world: World) -> Actor:
    """Slots whose token no row carries: the store first, then rows. Freed only in the phase they were seen in."""
    found = world.holders()
    yield STEP
    for holder in found or ():
        row = world.row_of(holder.execution_id)
        yield STEP
        if row is None or row.token != holder.token:
            ended = row is not None and row.status in TERMINAL
            phase = None if ended or not world.rules.rowless_freed_in_phase else holder.phase
            yield from release_found(world, holder, phase)
            yield from freed(world, holder.agent if row is None else row.agent)


def dispatch_again(world: World) -> None:
    """Publish the start of granted rows again."""
    for row in world.rows:
        if row.status == RUNNING and not row.started and row.token is not None:
            world.publish(row, row.token)
