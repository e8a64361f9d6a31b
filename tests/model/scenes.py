"""What random schedules show too rarely: one interleaving each, told step by step.

Under the full rules a scene comes to its end; with its rule left out it breaks an invariant.
"""

import uuid
from collections.abc import Callable

import redis

from capacity import slots

from . import repairing, running, steering, taking
from .asking import Actor
from .rows import QUEUED, RUNNING, AgentRow, Row, Setting
from .rules import Rules
from .world import World


class Scene:
    """A world with one agent, and hands to move its actors."""

    def __init__(self, *, rules: Rules, valkey: redis.Redis, limit: int = 1) -> None:
        self.world = World(seed=1, rules=rules, valkey=valkey)
        self.world.agents = {"a": AgentRow(limit=Setting(limit))}
        self.world.ways = ("in place",)
        self.world.agent_can_be_asked = lambda: True  # type: ignore[method-assign]
        self.world.open_store()

    # -- Rows ----------------------------------------------------------------------------------------------------------
    def row(self, *, http: bool = False, session: int | None = None, agent: str = "a") -> Row:
        """A request."""
        row = self.world.new_row(http=http)
        row.agent, row.session, row.priority, row.reject, row.unfit = agent, session, 5, False, False
        return row

    def submitted(self, **kind: object) -> Row:
        """A request that was taken in, whole."""
        row = self.row(**kind)  # type: ignore[arg-type]
        self.finish(taking.submit(self.world, row))
        return row

    def at_work(self, row: Row) -> Actor:
        """A worker with the row's message, its work going on."""
        return self.until(self.worker(row), lambda: row.token in self.world.live)

    def worker(self, row: Row) -> Actor:
        """A worker with the row's message."""
        message = next((message for message in self.world.messages if message[0] is row), None)
        assert message is not None, "no message for the row"
        self.world.messages.remove(message)
        return running.worker(self.world, *message)

    def working(self, **kind: object) -> tuple[Row, Actor]:
        """A request that was taken in, its work going on."""
        row = self.submitted(**kind)
        return row, self.at_work(row)

    # -- Steps ---------------------------------------------------------------------------------------------------------
    def until(self, actor: Actor, reached: Callable[[], object]) -> Actor:
        """Move an actor until something holds, or to its end."""
        while not reached() and next(actor, None) is not None:
            pass
        return actor

    def finish(self, *moved: Actor) -> None:
        """Move actors to their end."""
        for actor in moved:
            for _ in actor:
                pass

    def deliver_all(self) -> None:
        """Every message finds a worker that goes to work, and stays there."""
        for row in [row for row, _ in self.world.messages]:
            self.at_work(row)
        self.world.messages.clear()

    # -- What happens --------------------------------------------------------------------------------------------------
    def lapse(self, row: Row) -> None:
        """The row's lease ends."""
        self.world.lapse(next(holder for holder in slots.holders_of_fleet() if holder.execution_id == row.id))

    def flush(self) -> None:
        """The store is emptied."""
        self.world.flush()

    def rebuild(self) -> None:
        """The store is rebuilt."""
        self.finish(taking.rebuild(self.world))

    def repair(self) -> None:
        """Repair goes round, and what it lets start goes to work."""
        self.finish(repairing.sweep(self.world), repairing.reconcile(self.world))
        self.deliver_all()

    def drain(self) -> None:
        """The sweep comes by, and what it lets start goes to work."""
        self.finish(taking.drain(self.world, "a"))
        self.deliver_all()

    def lose_answers(self, *lost: bool) -> None:
        """Whether the next answers of the store get lost; the later ones arrive."""
        remaining = list(lost)
        self.world.answer_is_lost = lambda: bool(remaining) and remaining.pop(0)  # type: ignore[method-assign]

    def is_free(self) -> bool:
        """Whether nobody holds a slot."""
        return self.world.holders() == []

    def check(self) -> None:
        """Holders and rows agree, and nobody waits beside a free slot."""
        self.world.check_rest()


Told = Callable[[Scene], None]


def a_second_delivery_starts_the_row_claimed_in_place(scene: Scene) -> None:
    """Between the handover and the row's start: dispatched again under the same token. The slot is that run's."""
    world = scene.world
    _, worker = scene.working()
    following, third = scene.submitted(), scene.submitted()
    scene.until(worker, lambda: following.token in world.grants)
    repairing.dispatch_again(world)
    second = scene.at_work(following)
    scene.finish(worker)
    scene.deliver_all()
    assert third.status == QUEUED
    scene.finish(second)


def a_row_claimed_in_place_is_cancelled_before_its_handover(scene: Scene) -> None:
    """The cancel finds no slot to free yet; the handover then grants one."""
    _, worker = scene.working()
    following = scene.submitted()
    scene.until(worker, lambda: following.token)
    scene.finish(steering.cancel(scene.world, following), worker)
    scene.check()


def an_answer_lost_in_place_leaves_nobody_waiting(scene: Scene) -> None:
    """The handover was done, its answer lost: undone, released, drained."""
    _, worker = scene.working()
    following = scene.submitted()
    scene.until(worker, lambda: following.token)
    scene.lose_answers(False, True)
    scene.finish(worker)
    scene.deliver_all()
    scene.check()


def a_handover_is_asked_twice_after_the_limit_was_cut(scene: Scene) -> None:
    """The first call only released; the second finds nothing held and must not grant."""
    (_, worker), _ = scene.working(), scene.working()
    scene.finish(steering.resize(scene.world, "a", 1))
    following = scene.submitted()
    scene.until(worker, lambda: following.token)
    scene.lose_answers(True)
    scene.finish(worker)


def a_handover_after_the_limit_was_cut_only_releases(scene: Scene) -> None:
    """Two run, one may: the slot is not passed on."""
    (_, worker), _ = scene.working(), scene.working()
    scene.finish(steering.resize(scene.world, "a", 1))
    scene.submitted()
    scene.finish(worker)


def a_slot_in_the_middle_is_taken_again(scene: Scene) -> None:
    """The first of two ends, a third comes."""
    scene.world.ways = ("release",)
    (_, worker), _ = scene.working(), scene.working()
    scene.finish(worker)
    scene.submitted()
    scene.check()


def a_raised_limit_fills_at_once(scene: Scene) -> None:
    """A row waits at the old limit."""
    scene.working()
    scene.submitted()
    scene.finish(steering.resize(scene.world, "a", 2))
    scene.deliver_all()
    scene.check()


def a_newcomers_session_gets_a_row_in_line_meanwhile(scene: Scene) -> None:
    """The newcomer has a slot, and no row yet."""
    world = scene.world
    request = scene.until(taking.submit(world, scene.row(session=1)), lambda: world.grants)
    scene.submitted(session=1)
    scene.finish(request)
    scene.check()


def a_newcomer_of_a_session_starts_past_one_in_line(scene: Scene) -> None:
    """Both looked before either had a row; then a place is free that the one in line can't take."""
    world = scene.world
    first, second = scene.row(session=1), scene.row(session=1)
    request = scene.until(taking.submit(world, first), lambda: world.grants)
    scene.finish(taking.submit(world, second), request)
    scene.finish(steering.resize(world, "a", 2))


def a_raised_cap_fills_at_once(scene: Scene) -> None:
    """A row waits at the old cap, its agent has a slot free."""
    world = scene.world
    world.fleet.cap.change(1, at=world.tick())
    scene.working()
    scene.submitted()
    scene.finish(steering.set_cap(world, 2))
    scene.deliver_all()
    scene.check()


def a_freed_place_goes_to_the_agent_served_the_longest_ago(scene: Scene) -> None:
    """Under a cap of one: two rows of one agent in line, one of another."""
    world = scene.world
    world.fleet.cap.change(1, at=world.tick())
    world.agents["b"] = AgentRow(limit=Setting(2))
    _, worker = scene.working()
    second, _ = scene.submitted(), scene.submitted()
    others = scene.submitted(agent="b")
    scene.finish(worker)
    scene.finish(scene.at_work(second))
    if others.status != RUNNING:
        world.fail("UNFAIR")


def a_newcomer_comes_between_a_runs_end_and_the_drain(scene: Scene) -> None:
    """Under a cap of one, full: a row of another agent waits, then the place is free for a moment."""
    world = scene.world
    world.ways = ("release",)
    world.fleet.cap.change(1, at=world.tick())
    world.agents["b"] = AgentRow(limit=Setting(2))
    first, worker = scene.working()
    others = scene.submitted(agent="b")
    scene.until(worker, lambda: first.token is None and not world.holders())
    scene.submitted()
    scene.finish(worker)
    if others.status != RUNNING:
        world.fail("UNFAIR")


def a_drain_is_frozen_and_its_row_runs_meanwhile(scene: Scene) -> None:
    """It has taken a slot, the store was emptied and rebuilt; its claim is lost, and only its own slot is its to free."""
    world = scene.world
    world.ways = ("release",)
    first, worker = scene.working()
    scene.submitted(), scene.submitted()
    scene.until(worker, lambda: first.token is None)
    for _ in range(2):  # written, released
        next(worker)
    granted = len(world.grants)
    drain = scene.until(taking.drain(world, "a"), lambda: len(world.grants) > granted)
    scene.flush()
    scene.rebuild()
    scene.deliver_all()
    scene.finish(drain)
    scene.deliver_all()


def a_row_starts_without_a_slot_before_the_store_is_rebuilt(scene: Scene) -> None:
    """Its slot went with the store before its row was there, and is another's."""
    world = scene.world
    late = scene.row()
    request = scene.until(taking.submit(world, late), lambda: world.grants)
    scene.flush()
    scene.rebuild()
    scene.working()
    scene.finish(request)
    worker = scene.until(scene.worker(late), lambda: late.started)
    scene.flush()
    scene.rebuild()
    scene.finish(worker)


def a_granted_slot_vanishes(scene: Scene) -> None:
    """Before a worker comes."""
    row = scene.submitted()
    scene.world.vanish(next(holder for holder in slots.holders_of_fleet() if holder.execution_id == row.id))
    scene.finish(scene.worker(row))
    scene.deliver_all()
    scene.check()


def a_request_dies_between_slot_and_row(scene: Scene) -> None:
    """Nobody else knows of its slot."""
    world = scene.world
    scene.until(taking.submit(world, scene.row()), lambda: world.grants).close()
    scene.repair()
    scene.check()


def a_slot_vanishes_and_its_session_goes_on(scene: Scene) -> None:
    """The work's own lease has not ended: it may go on for as long."""
    lost, _ = scene.working(session=1)
    scene.submitted(session=1)
    scene.world.vanish(next(holder for holder in slots.holders_of_fleet() if holder.execution_id == lost.id))
    for _ in range(3):
        scene.repair()


def an_agent_is_deleted_while_it_works_and_its_name_used_again(scene: Scene) -> None:
    """The new agent's limit counts what still runs under its name."""
    world = scene.world
    _, worker = scene.working()
    scene.finish(steering.delete_agent(world, "a"))
    steering.reuse_name(world, "a", AgentRow(limit=Setting(1)))
    scene.submitted(agent="a'")
    scene.deliver_all()
    scene.finish(worker, repairing.sweep(world))
    scene.deliver_all()
    scene.check()


def a_slot_taken_before_the_store_was_emptied_has_no_row_yet(scene: Scene) -> None:
    """Its row is inserted when somebody else has the slot; a second rebuild must not give it one."""
    world = scene.world
    late = scene.row()
    request = scene.until(taking.submit(world, late), lambda: world.grants)
    scene.flush()
    scene.rebuild()
    scene.working()
    scene.finish(request)
    scene.flush()
    scene.rebuild()
    scene.finish(scene.worker(late))
    scene.deliver_all()


def a_rebuilder_is_frozen_and_overtaken(scene: Scene) -> None:
    """It goes on when its successor has opened the store and slots were granted."""
    world = scene.world
    scene.flush()
    frozen = taking.rebuild(world)
    for _ in range(3):
        next(frozen)
    world.valkey.delete("agent:rebuild")
    scene.rebuild()
    scene.submitted()
    scene.finish(frozen)
    scene.deliver_all()
    scene.check()


def the_store_comes_back_as_it_was(scene: Scene) -> None:
    """A restart from a snapshot: what it remembers has ended since."""
    row, worker = scene.working()
    saved = scene.world.snapshot()
    scene.finish(worker)
    scene.world.restore(saved)
    scene.rebuild()
    scene.check()
    assert row.token is None


def the_store_comes_back_from_before_the_run(scene: Scene) -> None:
    """A restart from a snapshot in which nobody holds a slot."""
    saved = scene.world.snapshot()
    scene.working()
    scene.world.restore(saved)
    scene.submitted()
    scene.deliver_all()


def a_request_comes_while_the_store_is_rebuilt(scene: Scene) -> None:
    """The rows are read, the slot that is held is not written yet."""
    world = scene.world
    scene.working()
    scene.flush()
    rebuild = taking.rebuild(world)
    for _ in range(6):  # begun, two keys cleared, the rows read, put back, read again
        next(rebuild)
    request = taking.submit(world, scene.row())
    for _ in range(3):
        next(request)
    scene.finish(rebuild, request)
    scene.deliver_all()


def a_row_starts_while_the_store_is_rebuilt(scene: Scene) -> None:
    """Its first renewal was before the store was emptied, its start comes after the rebuild began."""
    world = scene.world
    row = scene.submitted()
    worker = scene.worker(row)
    for _ in range(2):  # the row looked at, the lease renewed
        next(worker)
    scene.flush()
    rebuild = taking.rebuild(world)
    scene.until(rebuild, lambda: world.valkey.exists("agent:rebuild"))
    for _ in range(3):  # two keys cleared, the rows read once
        next(rebuild)
    scene.until(worker, lambda: row.started)
    scene.until(worker, lambda: row.token in world.live)
    scene.finish(rebuild)
    scene.deliver_all()
    scene.submitted()
    scene.deliver_all()


def a_run_ends_while_the_store_is_rebuilt(scene: Scene) -> None:
    """Its slot was written back, its row has ended since, and its release is not heard yet."""
    world = scene.world
    world.ways = ("release",)
    row, worker = scene.working()
    scene.flush()
    rebuild = scene.until(taking.rebuild(world), lambda: world.valkey.exists("agent:leases"))
    scene.until(worker, lambda: row.token is None)
    next(worker)
    scene.finish(rebuild, worker)
    scene.check()


def the_store_is_emptied_between_the_two_halves_of_giving_back(scene: Scene) -> None:
    """Whichever came first: the row's result or the slot's release."""
    world = scene.world
    world.ways = ("release",)
    row, worker = scene.working()
    scene.until(worker, lambda: row.token not in world.live)
    next(worker)
    scene.flush()
    scene.rebuild()
    scene.finish(worker)
    scene.check()


def a_stale_worker_starts_after_a_rebuild(scene: Scene) -> None:
    """It renewed before the store was emptied; the row has another token since."""
    row = scene.submitted()
    stale = scene.worker(row)
    for _ in range(2):  # the row looked at, the lease renewed
        next(stale)
    scene.flush()
    scene.rebuild()
    scene.finish(stale)
    for message in [message for message in scene.world.messages if message[0] is row]:
        scene.finish(running.worker(scene.world, *message))
    scene.world.messages.clear()
    if not scene.world.at_rest():
        scene.world.fail("RESTLESS")


def repair_meets_an_agent_that_can_not_be_asked(scene: Scene) -> None:
    """Its work goes on; then the store is emptied."""
    scene.world.agent_can_be_asked = lambda: False  # type: ignore[method-assign]
    lost, _ = scene.working(http=True)
    scene.submitted()
    scene.lapse(lost)
    scene.repair()
    scene.flush()
    scene.rebuild()
    scene.deliver_all()


def a_row_claimed_in_place_starts_between_repairs_look_and_its_act(scene: Scene) -> None:
    """It had no slot yet when the slots were read."""
    _, worker = scene.working()
    following = scene.submitted()
    scene.until(worker, lambda: following.token)
    repair = repairing.repair_rows_without_slot(scene.world)
    for _ in range(2):  # the rows seen, the slots read
        next(repair)
    scene.until(worker, lambda: following.token in scene.world.live)
    scene.finish(repair)


def repair_frees_the_slot_of_lost_work(scene: Scene) -> None:
    """The next in line begins the moment the slot is free."""
    lost, _ = scene.working(http=True)
    scene.submitted()
    scene.lapse(lost)
    repair = scene.until(repairing.sweep(scene.world), scene.is_free)
    scene.drain()
    scene.finish(repair)


def a_lease_ends_and_nobody_has_looked_yet(scene: Scene) -> None:
    """A newcomer and a pass of reclaim come by before the work is stopped."""
    lost, _ = scene.working(http=True)
    scene.submitted()
    scene.lapse(lost)
    next(repairing.sweep(scene.world))
    scene.drain()
    scene.submitted()
    scene.deliver_all()


def a_run_carried_on_by_its_row_is_lost(scene: Scene) -> None:
    """The store could not be reached, the row said `yours`: the work goes on past the lease's end."""
    lost, _ = scene.working()
    scene.submitted()
    scene.world.carried_by_row.add(_token(lost))
    scene.lapse(lost)
    scene.repair()


def a_local_run_outlives_its_worker(scene: Scene) -> None:
    """The worker is gone, the supervisor's clock is not."""
    lost, _ = scene.working()
    scene.submitted()
    scene.lapse(lost)
    scene.repair()


def a_worker_is_frozen_before_its_work_begins(scene: Scene, *, http: bool = False) -> None:
    """Its lease ends, its slot goes to the next; then it thaws."""
    lost = scene.submitted(http=http)
    worker = scene.until(scene.worker(lost), lambda: lost.started)
    for _ in range(2):
        next(worker)
    scene.submitted()
    scene.lapse(lost)
    scene.repair()
    scene.finish(worker)


def a_worker_is_frozen_before_its_request_is_sent(scene: Scene) -> None:
    """The same, with an agent over HTTP."""
    a_worker_is_frozen_before_its_work_begins(scene, http=True)


def a_request_is_frozen_before_its_row_is_there(scene: Scene) -> None:
    """Repair sees its slot without a row, and acts when a worker has started it."""
    world = scene.world
    row = scene.row()
    request = scene.until(taking.submit(world, row), lambda: world.grants)
    repair = repairing.repair_slots_without_row(world)
    for _ in range(2):
        next(repair)
    scene.finish(request)
    scene.at_work(row)
    scene.finish(repair)
    scene.submitted()
    scene.deliver_all()


def _token(row: Row) -> uuid.UUID:
    assert row.token is not None
    return row.token
