"""What owners and superusers do."""

from collections.abc import Generator

from .asking import STEP, Actor, Step, forget, release
from .rows import QUEUED, RUNNING, TERMINAL, AgentRow, Row, named
from .taking import drain_all, freed, withdraw
from .world import World

#: Rows cancelled in one transaction.
BATCH = 2


def cancel(world: World, row: Row) -> Actor:
    """Whatever it is doing, its outcome is `cancelled`; only its own slot is freed."""
    while row.status not in TERMINAL:
        if (yield from _cancel_once(world, row)):
            return
        yield STEP


def _cancel_once(world: World, row: Row) -> Generator[Step, None, bool]:
    """Whether it was what was seen of it."""
    status, token, started = row.status, row.token, row.started
    yield STEP
    if status == RUNNING and started and world.rules.cancel_granted_fenced:
        return world.request_cancel(row)
    if status == RUNNING and token is not None:
        if not world.cancel_granted(row, token):
            return False
        yield STEP
        yield from withdraw(world, (row, token) if world.rules.cancel_frees_slot else None, row.agent)
        return True
    if status != QUEUED or not world.cancel_queued(row):
        return False
    yield STEP
    yield from withdraw(world, None, row.agent)
    return True


def clear_queue(world: World, agent: str) -> Actor:
    """Cancel what is in line; what runs is not touched."""
    yield from _cancel_waiting(world, agent)
    yield from withdraw(world, None, agent)


def _cancel_waiting(world: World, agent: str) -> Actor:
    """What was in line at the first look, the last first, in batches."""
    seen = sorted(world.queue_of(agent), key=lambda row: row.place, reverse=True)
    yield STEP
    for start in range(0, len(seen), BATCH):
        for row in seen[start : start + BATCH]:
            world.cancel_queued(row)
        yield STEP


def free_by_force(world: World, row: Row) -> Actor:
    """Free one run's slot at once, whether its work is over or not: the row ended, the slot freed, the work told to stop.

    Until it has stopped, the limit may be exceeded by it, and its session run twice; by nothing else.
    """
    token = row.token
    yield STEP
    if token is None or not (world.finish(row, token, ok=False) or world.clear_token(row, token)):
        return
    world.forced.add(token)
    yield STEP
    if (yield from release(world, row, token)):
        yield from freed(world, row.agent)
    for _ in range(3):
        if row.http and world.agent_can_be_asked():
            world.terminate(row)  # a local run hears of it at its next renewal
            return
        yield STEP


# -- The end of an agent ---------------------------------------------------------------------------------------------
def delete_agent(world: World, agent: str) -> Actor:
    """The fact first: from then on nothing of it is taken in, drained, handed over or begun. Then what it has is ended.

    Its name is free at once: another may have it, and both share what is kept under it until the last run has ended.
    """
    world.agents[agent].deleted.change(True, at=world.tick())
    yield STEP
    yield from end_all(world, agent)


def reuse_name(world: World, agent: str, of: AgentRow) -> None:
    """Another agent under the name of a deleted one."""
    world.agents[f"{agent}'"] = of


def finish_deletions(world: World) -> Actor:
    """What came while an agent was deleted, and what outlasted it, is ended by the sweep."""
    for agent in [agent for agent, of in world.agents.items() if of.deleted.now and world.rules.deletions_finished]:
        yield from end_all(world, agent)


def end_all(world: World, agent: str) -> Actor:
    """Cancel its line, end what has not started, ask what runs to end; forget what is kept under its name when nothing is held."""
    yield from _cancel_waiting(world, agent)
    for row in [row for row in world.rows if row.agent == agent and row.token is not None]:
        yield from _cancel_once(world, row)
    if not any(named(other) == named(agent) and not of.deleted.now for other, of in world.agents.items()):
        yield from forget(world, agent)


# -- Settings --------------------------------------------------------------------------------------------------------
def resize(world: World, agent: str, limit: int) -> Actor:
    """A new limit."""
    world.agents[agent].limit.change(limit, at=world.tick())
    yield STEP
    if world.rules.raise_drains:
        yield from freed(world, agent)


def set_cap(world: World, cap: int | None) -> Actor:
    """A new cap of the fleet, or none."""
    world.fleet.cap.change(cap, at=world.tick())
    yield STEP
    if world.rules.cap_raise_drains:
        yield from drain_all(world)


def pause(world: World, agent: str, *, paused: bool) -> Actor:
    """Pause or resume an agent."""
    world.agents[agent].paused.change(paused, at=world.tick())
    yield STEP
    if not paused and world.rules.resume_drains:
        yield from freed(world, agent)


def pause_fleet(world: World, *, paused: bool) -> Actor:
    """Pause or resume the fleet."""
    world.fleet.paused.change(paused, at=world.tick())
    yield STEP
    if not paused and world.rules.resume_drains:
        yield from drain_all(world)
