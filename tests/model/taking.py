"""Into a slot: requests, and lines that move up."""

import uuid
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import replace

from capacity import slots
from capacity.errors import SlotsUnavailable
from capacity.slots import TakeOutcome

from .asking import STEP, Actor, Step, acquire, refill, release, release_once
from .rows import Gate, Row, named
from .world import World

#: A drain that loses the same row this often in one go will not end while that row's session runs.
MOST_LOSSES = 4


def submit(world: World, row: Row) -> Actor:
    """A request: straight into a slot where nobody waits and one is free, else in line, or refused."""
    gate, gave_back = world.look(row.agent), False
    yield STEP
    if _may_try(world, row, gate) and not (yield from _fleet_has_no_place(world, row, gate)):
        token = world.new_uuid()
        taken = yield from acquire(world, row, token, gate)
        if taken.outcome in (TakeOutcome.ACQUIRED, TakeOutcome.HELD):
            if world.insert_running(row, token, taken.number):
                world.check_order(row, gate.at, newcomer=True)
                yield STEP
                world.publish(row, token)
                return
            yield STEP
            yield from release_once(world, row, token)
            gave_back = True
    if row.reject or not world.enqueue(row, gate):
        # Whoever is refused drains nothing: an answer that says no can't carry what was admitted.
        world.left_to_sweep = world.left_to_sweep or gave_back
        return
    yield STEP
    yield from freed(world, row.agent)


def _fleet_has_no_place(world: World, row: Row, gate: Gate) -> Generator[Step, None, bool]:
    """Whether the cap is reached, or what is free below it is due to another agent's row in line."""
    if gate.cap is None or not world.rules.newcomer_waits_for_the_fleet:
        return False
    try:
        if slots.fleet_count() >= gate.cap:
            return True
        yield STEP
        waiting = [agent for agent in world.waiting_agents() if agent != row.agent and not world.look(agent).paused]
        counts = slots.states([named(agent) for agent in waiting]) if waiting else {}
    except SlotsUnavailable:
        return False  # the acquire meets the same
    return any(counts[named(agent)].active < world.agents[agent].limit.now for agent in waiting)


def _may_try(world: World, row: Row, gate: Gate) -> bool:
    if gate.paused and world.rules.newcomer_waits_while_paused:
        return False
    if gate.head is not None and world.rules.no_barging:
        return False
    return row.session is None or not world.session_is_unfinished(row)


def follow_up(world: World, row: Row) -> Actor:
    """A follow-up or a retry: in line, whatever its depth."""
    world.enqueue(row)
    yield STEP
    yield from freed(world, row.agent)


def drain(world: World, agent: str, *, most: int | None = None) -> Generator[Step, None, int]:
    """Free slots to startable rows, in order, until there is no slot, no row, or `most` were given; how many."""
    passed: list[Row] = []
    lost: Counter[Row] = Counter()
    admitted, gate = 0, world.look(agent)
    while admitted != most and max(lost.values(), default=0) < MOST_LOSSES:
        gate = _looked(world, agent, passed, gate)
        yield STEP
        if gate.head is None or (gate.paused and world.rules.pause_stops_drain):
            return admitted
        head, token = gate.head, world.new_uuid()
        taken = yield from acquire(world, head, token, gate)
        if taken.outcome == TakeOutcome.BUSY:
            passed.append(head)
            if world.rules.busy_left_alone:
                continue
            token = _token_in_slot(world, head) or token
        elif taken.outcome not in (TakeOutcome.ACQUIRED, TakeOutcome.HELD):
            return admitted
        if (yield from claim(world, head, token, taken.number, gate.at, passed)):
            admitted += 1
        else:
            # Once: whoever was first may put it back. Twice: it can't be claimed now.
            lost[head] += 1
            passed += [head] * (lost[head] == 2 and world.rules.claim_lost_twice_skips_row)
    if admitted != most:
        world.fail(f"SPINS on {agent}")
    return admitted


def _looked(world: World, agent: str, passed: list[Row], before: Gate) -> Gate:
    gate = world.look(agent, passed)
    return gate if world.rules.drain_looks_each_time else replace(before, head=gate.head, at=gate.at)


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
    if world.session_runs(row):
        world.wait_for_session(row)
        yield STEP
    mine = token if world.rules.claim_lost_frees_own_token else row.token or token
    yield from release_once(world, row, mine)
    return False


# -- The fleet -------------------------------------------------------------------------------------------------------
def drain_all(world: World) -> Actor:
    """Drain every line; under a cap one place a turn, to the agent that was served the longest ago."""
    cap = world.fleet.cap.now
    yield STEP
    while (yield from _go_round(world, cap)) and cap is not None:
        pass


def _go_round(world: World, cap: int | None) -> Generator[Step, None, bool]:
    """Whether this round over the agents with startable rows has admitted any."""
    waiting, admitted = world.waiting_agents(), 0
    yield STEP
    for agent in waiting:
        try:
            if cap is not None and slots.fleet_count() >= cap:
                break
        except SlotsUnavailable:
            break  # the sweep will
        yield STEP
        served = yield from drain(world, agent, most=1 if cap is not None else None)
        admitted += served
        if served and cap is not None:
            world.agents[agent].served_at = world.tick()
    return bool(admitted)


def freed(world: World, agent: str) -> Actor:
    """Fill what came free, or was opened: from the agent's own line, or, under a cap, from that of the agent whose turn it is."""
    cap = world.fleet.cap.now
    yield STEP
    if cap is None or not world.rules.freed_place_is_the_fleets:
        yield from drain(world, agent)
    else:
        yield from drain_all(world)


def withdraw(world: World, held: tuple[Row, uuid.UUID] | None, agent: str) -> Actor:
    """After a row was ended, or put back: free its slot if it had one, and let the line move up."""
    if held is not None:
        yield from release(world, *held)
    yield from freed(world, agent)


def rebuild(world: World) -> Actor:
    """Fill an emptied store, then every line."""
    if (yield from refill(world)):
        yield from drain_all(world)
