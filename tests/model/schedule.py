"""One random schedule: requests, messages, steering and faults in any order, then the way to rest, checked throughout."""

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import redis

from capacity import keys, slots

from . import actors
from .actors import Actor
from .rules import Rules
from .world import FAILED, SUCCESS, TERMINAL, WAYS, AgentRow, Snapshot, World

#: How often repair may go round before everything must be at rest.
MOST_ROUNDS = 30
MOST_STEPS = 20_000


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How often what goes wrong in a schedule; with `crash`, `lose` or `lapse` it may take repair to come to rest."""

    crash: int = 0
    flush: int = 0
    lapse: int = 0
    lose: bool = False
    #: Answers of the store are lost, and the question is asked again.
    repeat: bool = False
    #: Processes that stand still, passes of repair, changes by owners.
    freeze: int = 1
    repair: int = 0
    steering: int = 1
    ways: tuple[str, ...] = WAYS

    @property
    def needs_repair(self) -> bool:
        """Whether something may be left that only repair puts right."""
        return bool(self.crash or self.lose or self.lapse)


CALM = Faults()
REPEATED = Faults(repeat=True, repair=1)
EMPTIED = Faults(flush=1, repair=1)
FAULTY = Faults(crash=1, lose=True, flush=1, lapse=1, repeat=True, repair=1)
LAPSING = Faults(lapse=2, lose=True, repair=2)
STEERED = Faults(steering=3)


@dataclass
class Counts:
    """What schedules contained."""

    schedules: int = 0
    steps: int = 0
    done: int = 0
    failed: int = 0


def faults_of(seed: int) -> Faults:
    """The kind of schedule a seed stands for."""
    return (CALM, EMPTIED, FAULTY, FAULTY, LAPSING, REPEATED, STEERED)[seed % 7]


class Schedule:
    """Runs one seed."""

    def __init__(
        self, *, seed: int, rules: Rules, faults: Faults, valkey: redis.Redis, http: bool | None = None, crowded: bool = False
    ) -> None:
        self.world = World(seed=seed, rules=rules, valkey=valkey)
        self.random: random.Random = self.world.random
        self.faults = faults
        self.actors: list[Actor] = []
        self.working: set[Actor] = set()
        self.frozen: set[Actor] = set()
        self.steps = 0
        self.saved: Snapshot | None = None
        world = self.world
        world.agents = {name: AgentRow(limit=self.random.choice((1, 1, 2))) for name in ("a", "b")[: self.random.choice((1, 1, 2))]}
        world.most_slots = max(agent.limit for agent in world.agents.values())
        world.fleet_limit = self.random.choice((None, None, None, 1, 2))
        self.waiting = [world.new_row(http=http, crowded=crowded) for _ in range(self.random.choice((3, 4, 5, 7)))]
        self.left = {"flush": 2 * faults.flush, "restart": faults.flush, "lapse": 3 * faults.lapse, "cut": 2 * faults.lapse}
        self.left |= {"reconcile": 4 * faults.repair}
        self.left |= dict.fromkeys(("resize", "pause", "cancel"), 2 * faults.steering)

    # -- The run -------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Raise `Violation` where an invariant breaks."""
        self.world.open_store()
        self.world.lose_messages, self.world.lose_answers = self.faults.lose, self.faults.repeat
        self.world.ways = self.faults.ways
        events = self._events()
        names = list(events)
        weights = [events[name][0] for name in names]
        for _ in range(self.random.choice((150, 250, 400))):
            events[self.random.choices(names, weights)[0]][1]()
        self._settle()

    def _events(self) -> dict[str, tuple[float, Callable[[], None]]]:
        faults = self.faults
        return {
            "step": (60, self._step),
            "freeze": (4 * faults.freeze, self._freeze),
            "redispatch": (3 * faults.repair, lambda: actors.dispatch_again(self.world)),
            "submit": (10, self._submit),
            "deliver": (12, self._deliver),
            "sweep": (1, lambda: self._add(actors.sweep(self.world))),
            "resize": (faults.steering, self._resize),
            "pause": (faults.steering, self._pause),
            "cancel": (faults.steering, self._cancel),
            "reconcile": (3 * faults.repair, self._reconcile),
            "rebuild": (3 * faults.flush, self._rebuild),
            "save": (faults.flush, self._save),
            "flush": (faults.flush, self._flush),
            "restart": (faults.flush, self._restart),
            "lapse": (2 * faults.lapse, self._lapse),
            "cut": (faults.lapse, self._cut),
            "crash": (faults.crash, self._crash),
        }

    def _add(self, actor: Actor) -> None:
        self.actors.append(actor)

    def _step(self) -> None:
        if awake := [actor for actor in self.actors if actor not in self.frozen]:
            self._advance(self.random.choice(awake))

    def _freeze(self) -> None:
        """A process that stands still for a while; one that was frozen goes on."""
        if self.actors and self.random.random() < 0.5:
            self.frozen.add(self.random.choice(self.actors))
        elif self.frozen:
            self.frozen.remove(self.random.choice([actor for actor in self.actors if actor in self.frozen]))

    def _advance(self, actor: Actor) -> None:
        self.steps += 1
        try:
            (self.working.add if next(actor) else self.working.discard)(actor)
        except StopIteration:
            self._remove(actor)

    def _remove(self, actor: Actor) -> None:
        self.actors.remove(actor)
        self.working.discard(actor)
        self.frozen.discard(actor)

    def _submit(self) -> None:
        if self.waiting:
            self._add(actors.submit(self.world, self.waiting.pop()))

    def _deliver(self) -> None:
        if self.world.messages:
            messages = self.world.messages
            row, token = messages.pop(0 if self.random.random() < 0.7 else self.random.randrange(len(messages)))
            self._add(actors.worker(self.world, row, token))

    def _may(self, what: str) -> bool:
        self.left[what] -= 1
        return self.left[what] >= 0

    def _resize(self) -> None:
        if self._may("resize"):
            self._add(actors.resize(self.world, self.random.choice(list(self.world.agents)), self.random.choice((1, 2, 3))))

    def _pause(self) -> None:
        if self._may("pause"):
            name = self.random.choice(list(self.world.agents))
            self._add(actors.pause(self.world, name, paused=not self.world.agents[name].paused))

    def _cancel(self) -> None:
        if self.world.rows and self._may("cancel"):
            self._add(actors.cancel(self.world, self.random.choice(self.world.rows)))

    def _reconcile(self) -> None:
        if self._may("reconcile"):
            self._add(actors.reconcile(self.world))

    def _rebuild(self) -> None:
        if self.world.holders() is None:
            self._add(actors.refill(self.world))

    # -- Faults --------------------------------------------------------------------------------------------------------
    def _save(self) -> None:
        self.saved = self.world.snapshot()

    def _flush(self) -> None:
        if self._may("flush"):
            self.world.valkey.flushdb()

    def _restart(self) -> None:
        if self._may("restart"):
            self.world.restore(self.saved if self.saved and self.random.random() < 0.7 else self.world.snapshot())

    def _lapse(self) -> None:
        holders = self.world.holders()
        if holders and self._may("lapse"):
            self.world.lapse(self.random.choice(holders))

    def _cut(self) -> None:
        """Workers can't reach the store, or can again; or a run that its row carried on comes to its end."""
        if self.world.carried_by_row and self.random.random() < 0.2:
            self.world.stop_carrying(self.random.choice(sorted(self.world.carried_by_row)))
        elif self._may("cut"):
            self.world.unreachable = not self.world.unreachable

    def _crash(self) -> None:
        """Any process; as often as not one at work, whose agent goes on."""
        at_work = [actor for actor in self.actors if actor in self.working]
        if self.actors:
            actor = self.random.choice(at_work if at_work and self.random.random() < 0.5 else self.actors)
            self._remove(actor)
            actor.close()

    # -- The way to rest -----------------------------------------------------------------------------------------------
    def _settle(self) -> None:
        world = self.world
        while self.waiting:
            self._submit()
        self._finish(working_too=False)
        for name in (name for name, agent in world.agents.items() if agent.paused):
            self._add(actors.pause(world, name, paused=False))
        if not self.faults.needs_repair:
            self._finish(working_too=False)
            self._sweep_if_due(working_too=False)
            world.check_agreement()
            world.check_nobody_waits()
        self._finish()
        if self.faults.needs_repair:
            self._recover()
        self._sweep_if_due()
        if not world.at_rest():
            world.fail(f"RESTLESS {world.holders()}")
        world.check_agreement()

    def _sweep_if_due(self, *, working_too: bool = True) -> None:
        """What only the sweep finds: a place another agent freed under the cap, a store emptied in peace, a release unheard."""
        if self.world.fleet_limit is not None or self.faults.repeat or self.world.holders() is None:
            for _ in range(4):
                self._add(actors.sweep(self.world))
                self._finish(working_too=working_too)

    def _finish(self, *, working_too: bool = True) -> None:
        """Run everybody to the end, messages and all; the ones at work only if they are to."""
        limit = self.steps + MOST_STEPS
        while True:
            while self.world.messages:
                self._deliver()
            ready = self.actors if working_too else [actor for actor in self.actors if actor not in self.working]
            if not ready:
                return
            self._advance(self.random.choice(ready))
            if self.steps > limit:
                self.world.fail("ENDLESS")

    def _recover(self) -> None:
        """Whoever is left over is gone: leases end, repair goes round."""
        world = self.world
        world.unreachable = False
        for _ in range(MOST_ROUNDS):
            if self.random.random() < 0.5:
                world.valkey.delete(keys.rebuild())
            self._add(actors.sweep(world))
            self._finish()
            for token in sorted(world.carried_by_row):
                world.stop_carrying(token)
            for holder in world.holders() or ():
                if holder.phase == slots.Phase.STARTED:
                    world.lapse(holder)
            self._add(actors.reconcile(world))
            self._finish()
            if world.at_rest():
                return

    def count(self, counts: Counts) -> None:
        """Add what this schedule contained."""
        rows = self.world.rows
        counts.schedules += 1
        counts.steps += self.steps
        counts.done += sum(row.status == SUCCESS for row in rows)
        counts.failed += sum(row.status == FAILED for row in rows)
        assert all(row.status in TERMINAL for row in rows)


def run_schedule(
    *,
    seed: int,
    valkey: redis.Redis,
    rules: Rules | None = None,
    faults: Faults | None = None,
    http: bool | None = None,
    crowded: bool = False,
) -> Schedule:
    """Run one seed; raises `Violation`."""
    schedule = Schedule(seed=seed, rules=rules or Rules(), faults=faults or faults_of(seed), valkey=valkey, http=http, crowded=crowded)
    schedule.run()
    return schedule


def fresh_seed() -> int:
    """A seed nobody chose."""
    return uuid.uuid4().int % 1_000_000_000
