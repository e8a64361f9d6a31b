"""The store, asked until it answers, and filled again where it was emptied. Here and in its neighbours a `yield` is where
anything else may happen, and where a crash cuts an actor off."""

import uuid
from collections.abc import Callable, Generator
from typing import TypeVar

from capacity import keys, slots
from capacity.slots import HandoverOutcome, Phase, ReleaseOutcome, RenewOutcome, TakeOutcome

from .ground import LEASE_SECONDS
from .rows import Gate, Row, named
from .world import World

T = TypeVar("T")
#: A step; True while the actor waits for an agent's work, which may last.
Step = bool
Actor = Generator[Step, None, None]
WORKING = True
STEP = False


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


def acquire(world: World, row: Row, token: uuid.UUID, gate: Gate) -> Generator[Step, None, slots.Taken]:
    """The outcome, and the slot's number."""
    lease = world.lease(row, token)

    def ask() -> slots.Taken:
        taken = slots.acquire(lease=lease, limit=gate.limit, fleet_limit=gate.cap, preview="x")
        if taken.outcome == TakeOutcome.ACQUIRED:
            world.granted(row, token, gate)
        return taken

    return (yield from asked(world, ask, lambda taken: taken.outcome))


def release(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, bool]:
    """Whether it freed a slot."""
    if not world.rules.release_until_answered:
        return (yield from release_once(world, row, token))
    lease = world.lease(row, token)
    answer = yield from asked(world, lambda: slots.release(lease=lease), int)
    return answer == ReleaseOutcome.RELEASED


def release_once(world: World, row: Row, token: uuid.UUID) -> Generator[Step, None, bool]:
    """A release of a token that no row carries: should the store have to be rebuilt, the slot is gone with it."""
    answer = slots.release(lease=world.lease(row, token))
    yield STEP
    return answer == ReleaseOutcome.RELEASED


def release_found(world: World, holder: slots.FleetHolder | slots.LostHolder, phase: Phase | None = None) -> Actor:
    """Release what was found in the store, whether or not there is a row."""
    lease = slots.Lease(agent=holder.agent, execution_id=holder.execution_id, token=holder.token, timeout_seconds=0)
    yield from asked(world, lambda: slots.release(lease=lease, phase=phase), int)


def handover(
    world: World, row: Row, token: uuid.UUID, head: Row, next_token: uuid.UUID, gate: Gate
) -> Generator[Step, None, tuple[HandoverOutcome, int]]:
    """Move the slot, first lease included; a claim stands behind it, so that any answer but `granted` undoes that."""
    done, following = world.lease(row, token), world.lease(head, next_token)

    def ask() -> slots.Handed:
        handed = slots.handover(
            done=done, following=following, limit=gate.limit, fleet_limit=None, paused=False, started=True,
            lease_seconds=LEASE_SECONDS, preview="x",
        )  # fmt: skip
        if handed.outcome == HandoverOutcome.GRANTED and next_token not in world.grants:
            world.granted(head, next_token, gate)
        return handed

    if world.answer_is_lost():
        ask()
        yield STEP
    handed = ask()
    yield STEP
    return handed.outcome, handed.number


def forget(world: World, agent: str) -> Actor:
    """Remove what is kept under the name of a deleted agent, unless something of it holds a slot."""
    yield from asked(world, lambda: slots.forget(named(agent)), int)


def renew(world: World, row: Row, token: uuid.UUID) -> RenewOutcome:
    """One renewal; what the run knows of its lease changes with the answer."""
    (outcome,) = slots.renew(leases=[world.lease(row, token)], lease_seconds=LEASE_SECONDS)
    if outcome == RenewOutcome.OK:
        world.renewed(token)
    return outcome


# -- Rebuild ---------------------------------------------------------------------------------------------------------
def refill(world: World) -> Generator[Step, None, bool]:
    """Rebuild the slots from the rows, or learn that somebody else is at it; whether this one has opened them."""
    nonce, began_at = world.new_uuid(), world.tick()
    began = bool(slots.SCRIPTS["rebuild_begin"](keys=[keys.epoch(), keys.rebuild()], args=slots._fence(nonce)))
    yield STEP
    if not began:
        world.rebuild_waited_for()
        return False
    world.waits_for_rebuild = 0
    if not (yield from _cleared(world, nonce)):
        return False
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
            return False
        world.waits_for_rebuild = 0
        yield STEP
    opened = slots.rebuild_open(nonce=nonce)
    world.emptied = world.emptied and not opened
    yield STEP
    return opened


def _cleared(world: World, nonce: uuid.UUID) -> Generator[Step, None, bool]:
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
