"""One random schedule: requests, messages, steering and faults in any order, then the way to rest, checked throughout."""

import itertools
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import redis

from capacity import keys, slots

from . import repairing, running, steering, taking
from .asking import Actor
from .ground import WAYS
from .rows import FAILED, SUCCESS, TERMINAL, AgentRow, Setting
from .rules import Rules
from .world import Snapshot, World

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
    #: Slots that vanish from the store.
    vanish: int = 0
    ways: tuple[str, ...] = WAYS

    @property
    def needs_repair(self) -> bool:
        """Whether something may be left that only repair puts right."""
        return bool(self.crash or self.lose or self.lapse or self.vanish)


CALM = Faults()
REPEATED = Faults(repeat=True, repair=1)
EMPTIED = Faults(flush=1, repair=1)
FAULTY = Faults(crash=1, lose=True, flush=1, lapse=1, repeat=True, repair=1)
LAPSING = Faults(lapse=2, lose=True, repair=2, vanish=1)
STEERED = Faults(steering=3)
MIXED = Faults(crash=1, lose=True, flush=1, lapse=1, repeat=True, repair=2, steering=3, vanish=1)


@dataclass
class Counts:
    """What schedules contained."""

    schedules: int = 0
    steps: int = 0
    done: int = 0
    failed: int = 0


def faults_of(seed: int) -> Faults:
    """The kind of schedule a seed stands for."""
    return (CALM, EMPTIED, FAULTY, FAULTY, LAPSING, REPEATED, STEERED, MIXED, MIXED)[seed % 9]


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
        world.agents = {name: self._agent() for name in ("a", "b", "c")[: self.random.choice((1, 1, 2, 2, 3))]}
        world.fleet.cap = Setting(self.random.choice((None, None, None, 1, 2)))
        self.waiting = [world.new_row(http=http, crowded=crowded) for _ in range(self.random.choice((3, 4, 5, 7)))]
        self.left = {"flush": 2 * faults.flush, "restart": faults.flush, "lapse": 3 * faults.lapse, "cut": 2 * faults.lapse}
        self.left |= {"reconcile": 4 * faults.repair}
        self.left |= dict.fromkeys(("resize", "cap", "pause", "cancel", "follow"), 2 * faults.steering)
        self.left |= {
            "pause fleet": faults.steering,
            "clear": faults.steering // 2,
            "force": faults.steering // 2,
            "delete": faults.steering // 2,
            "vanish": faults.vanish,
        }

    def _agent(self) -> AgentRow:
        return AgentRow(limit=Setting(self.random.choice((1, 1, 2))), depth=self.random.choice((50, 50, 50, 2)))

    # -- The run -------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Raise `Violation` where an invariant breaks."""
        self.world.open_store()
        self.world.lose_messages, self.world.lose_answers = self.faults.lose, self.faults.repeat
        self.world.ways = self.faults.ways
        events = self._events()
        names = list(events)
        weights = list(itertools.accumulate(events[name][0] for name in names))
        for _ in range(self.random.choice((150, 250, 400))):
            events[self.random.choices(names, cum_weights=weights)[0]][1]()
        self._settle()

    def _events(self) -> dict[str, tuple[float, Callable[[], None]]]:
        faults = self.faults
        return {
            "step": (60, self._step),
            "freeze": (4 * faults.freeze, self._freeze),
            "redispatch": (3 * faults.repair, lambda: repairing.dispatch_again(self.world)),
            "submit": (10, self._submit),
            "deliver": (12, self._deliver),
            "sweep": (1, lambda: self._add(repairing.sweep(self.world))),
            "resize": (faults.steering, self._resize),
            "cap": (0.5 * faults.steering, self._cap),
            "pause": (faults.steering, self._pause),
            "pause fleet": (0.5 * faults.steering, self._pause_fleet),
            "cancel": (faults.steering, self._cancel),
            "clear": (0.5 * faults.steering, self._clear),
            "force": (faults.steering, self._force),
            "follow": (faults.steering, self._follow),
            "delete": (0.3 * faults.steering, self._delete),
            "reuse": (faults.steering, self._reuse),
            "reconcile": (3 * faults.repair, self._reconcile),
            "rebuild": (3 * faults.flush, self._rebuild),
            "save": (faults.flush, self._save),
            "flush": (faults.flush, self._flush),
            "restart": (faults.flush, self._restart),
            "lapse": (2 * faults.lapse, self._lapse),
            "vanish": (faults.vanish, self._vanish),
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
            self._add(taking.submit(self.world, self.waiting.pop()))

    def _deliver(self) -> None:
        if self.world.messages:
            messages = self.world.messages
            row, token = messages.pop(0 if self.random.random() < 0.7 else self.random.randrange(len(messages)))
            self._add(running.worker(self.world, row, token))

    def _may(self, what: str) -> bool:
        self.left[what] -= 1
        return self.left[what] >= 0

    def _resize(self) -> None:
        if self._may("resize"):
            self._add(steering.resize(self.world, self.random.choice(list(self.world.agents)), self.random.choice((1, 2, 3))))

    def _pause(self) -> None:
        if self._may("pause"):
            name = self.random.choice(list(self.world.agents))
            self._add(steering.pause(self.world, name, paused=not self.world.agents[name].paused.now))

    def _pause_fleet(self) -> None:
        if self._may("pause fleet"):
            self._add(steering.pause_fleet(self.world, paused=not self.world.fleet.paused.now))

    def _cap(self) -> None:
        if self._may("cap"):
            self._add(steering.set_cap(self.world, self.random.choice((None, 1, 2, 3))))

    def _clear(self) -> None:
        if self._may("clear"):
            self._add(steering.clear_queue(self.world, self.random.choice(list(self.world.agents))))

    def _force(self) -> None:
        started = [row for row in self.world.rows if row.started and row.token is not None]
        if started and self._may("force"):
            self._add(steering.free_by_force(self.world, self.random.choice(started)))

    def _delete(self) -> None:
        living = [name for name, agent in self.world.agents.items() if not agent.deleted.now]
        if living and self._may("delete"):
            self._add(steering.delete_agent(self.world, self.random.choice(living)))

    def _reuse(self) -> None:
        """An agent under the name of a deleted one, and requests to it."""
        agents = self.world.agents
        free = [name for name, agent in agents.items() if agent.deleted.now and f"{name}'" not in agents]
        if free:
            name = self.random.choice(free)
            steering.reuse_name(self.world, name, self._agent())
            for row in self.waiting:
                row.agent, row.session = f"{name}'" if row.agent == name else row.agent, None
            for _ in range(2):
                row = self.world.new_row()
                row.agent, row.session = f"{name}'", None
                self.waiting.append(row)

    def _follow(self) -> None:
        """A follow-up of something that has ended, or a retry of it."""
        ended = [row for row in self.world.rows if row.status in TERMINAL]
        if ended and self._may("follow"):
            followed, row = self.random.choice(ended), self.world.new_row()
            row.agent, row.session, row.retry, row.front = followed.agent, followed.session, True, self.random.random() < 0.7
            self._add(taking.follow_up(self.world, row))

    def _cancel(self) -> None:
        if self.world.rows and self._may("cancel"):
            self._add(steering.cancel(self.world, self.random.choice(self.world.rows)))

    def _reconcile(self) -> None:
        if self._may("reconcile"):
            self._add(repairing.reconcile(self.world))

    def _rebuild(self) -> None:
        if self.world.emptied:
            self._add(taking.rebuild(self.world))

    # -- Faults --------------------------------------------------------------------------------------------------------
    def _save(self) -> None:
        self.saved = self.world.snapshot()

    def _flush(self) -> None:
        if self._may("flush"):
            self.world.flush()

    def _restart(self) -> None:
        if self._may("restart"):
            self.world.restore(self.saved if self.saved and self.random.random() < 0.7 else self.world.snapshot())

    def _lapse(self) -> None:
        if self.left["lapse"] > 0 and (holders := self.world.holders()) and self._may("lapse"):
            self.world.lapse(self.random.choice(holders))

    def _vanish(self) -> None:
        if self.left["vanish"] > 0:
            started = [holder for holder in self.world.holders() or () if holder.phase == slots.Phase.STARTED]
            if started and self._may("vanish"):
                self.world.vanish(self.random.choice(started))

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
        for name in (name for name, agent in world.agents.items() if agent.paused.now):
            self._add(steering.pause(world, name, paused=False))
        if world.fleet.paused.now:
            self._add(steering.pause_fleet(world, paused=False))
        if not self.faults.needs_repair:
            self._finish(working_too=False)
            self._sweep_if_due(working_too=False)
            if not any(row.token in world.robbed for row in world.rows):  # such a one is still being stopped
                world.check_rest()
        self._finish()
        if self.faults.needs_repair:
            self._recover()
        self._sweep_if_due()
        world.check_ended()

    def _sweep_if_due(self, *, working_too: bool = True) -> None:
        """What only the sweep finds: a store that was emptied, a release unheard, a session let go by a run robbed of its slot,

        what came while its agent was deleted, a place that another agent left to its namesake, or that one who was refused had.
        """
        world = self.world
        deleted = any(agent.deleted.now for agent in world.agents.values())
        if self.faults.repeat or self.faults.flush or world.robbed or deleted or world.left_to_sweep:
            self._sweep(4, working_too=working_too)
        while world.unsaid() and self.steps < MOST_STEPS:
            self._sweep(1, working_too=working_too)

    def _sweep(self, times: int, *, working_too: bool) -> None:
        for _ in range(times):
            self._add(repairing.sweep(self.world))
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
            self._add(repairing.sweep(world))
            self._finish()
            for token in sorted(world.carried_by_row):
                world.stop_carrying(token)
            for holder in world.holders() or ():
                if holder.phase == slots.Phase.STARTED:
                    world.lapse(holder)
            self._add(repairing.sweep(world))
            self._add(repairing.reconcile(world))
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
