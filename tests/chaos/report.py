"""What a chaos run showed, in figures."""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.agents import ChaosAgent
from tests.chaos.course import Course
from tests.chaos.ground import LEASE_SECONDS, Ground
from tests.chaos.load import Load
from tests.chaos.plan import Plan
from tests.chaos.schedule import Fault, Kind
from tests.chaos.watch import as_id, seconds_of

KILLED = (Kind.KILL_WORKER, Kind.SHIFT_CLOCK)
EMPTIED = (Kind.FLUSH_STORE, Kind.KILL_STORE, Kind.OLD_STORE)


@dataclass
class Spread:
    """Some times, in seconds."""

    count: int = 0
    p50: float | None = None
    longest: float | None = None

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Spread":
        """Theirs."""
        times = sorted(seconds)
        return cls(len(times), round(statistics.median(times), 2), round(times[-1], 2)) if times else cls()

    def __str__(self) -> str:
        return f"p50 {self.p50} s, max {self.longest} s ({self.count})" if self.count else "none"


@dataclass
class Times:
    """How long it took until things were right again."""

    slot_back_after_kill: Spread = field(default_factory=Spread)
    slot_back_after_freeze: Spread = field(default_factory=Spread)
    accepted_after_emptied: Spread = field(default_factory=Spread)
    granted_after_emptied: Spread = field(default_factory=Spread)
    drained_after_broker: Spread = field(default_factory=Spread)

    def named(self, lease_seconds: int) -> list[tuple[str, str]]:
        """Each with its name, those that there are."""
        times = {
            f"slot back after kill -9 of its worker (lease {lease_seconds} s)": self.slot_back_after_kill,
            f"slot back after its worker was frozen or cut off (lease {lease_seconds} s)": self.slot_back_after_freeze,
            "first task accepted after the store was emptied": self.accepted_after_emptied,
            "first slot granted after the store was emptied": self.granted_after_emptied,
            "granted rows begun after the broker's return": self.drained_after_broker,
        }
        return [(name, str(spread)) for name, spread in times.items() if spread.count]


@dataclass
class Report:
    """The figures of one run. All times are in seconds; leases lasted `lease_seconds`."""

    seed: int
    seconds: float
    database: str
    store: str
    agents: int
    slots: int
    lease_seconds: int = LEASE_SECONDS
    tasks: int = 0
    accepted: int = 0
    refused: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    messages_stolen: int = 0
    repairs: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    peaks: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost: int = 0
    begun_twice: int = 0
    wild: Times = field(default_factory=Times)
    #: The same after faults that came alone.
    single: Times = field(default_factory=Times)
    #: Slots that were longest in coming back: seconds, execution, how it ended, fault.
    slowest: list[tuple[float, str, str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def line(self) -> str:
        """It in a few lines."""
        head = f"{self.tasks} tasks, {self.accepted} accepted, {self.statuses}; {sum(self.faults.values())} faults; peak {self.peak}"
        times = [f"  {sort}: {name}: {value}" for sort, found in self._times for name, value in found]
        tail = f"  repairs: {self.repairs}; {self.messages_stolen} messages dropped or repeated; answers {self.answers}"
        return "\n".join([head, *times, *(f"  {one}" for one in self.slowest), tail])

    @property
    def _times(self) -> list[tuple[str, list[tuple[str, str]]]]:
        return [("amid other faults", self.wild.named(self.lease_seconds)), ("alone", self.single.named(self.lease_seconds))]

    def write(self, directory: Path) -> None:
        """Keep it as JSON and as markdown."""
        directory.mkdir(parents=True, exist_ok=True)
        name = f"chaos-{self.database.lower()}-{self.seconds / 60:g}-minutes-seed-{self.seed}"
        (directory / f"{name}.json").write_text(self.as_json())
        (directory / f"{name}.md").write_text(self.as_markdown())

    def as_json(self) -> str:
        """It whole."""
        return json.dumps(asdict(self), indent=2)

    def as_markdown(self) -> str:
        """It as a table."""
        where = f"{self.database} and {self.store}"
        head = f"### {self.seconds / 60:g} minutes, {self.agents} agents, {self.slots} slots, {where}, seed {self.seed}"
        lines = [
            ("tasks sent / accepted / refused", f"{self.tasks} / {self.accepted} / {self.refused}"),
            ("ended as", ", ".join(f"{name} {count}" for name, count in sorted(self.statuses.items()))),
            ("faults", ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))),
            ("lost / begun twice / over the limit", f"{self.lost} / {self.begun_twice} / {sum(a > b for a, b in self.peaks.values())}"),
            ("most at once, by the agents", str(self.peak)),
            *((f"{name}, {sort}", value) for sort, found in self._times for name, value in found),
            ("repairs", ", ".join(f"{name} {count}" for name, count in sorted(self.repairs.items()))),
            ("violations", "; ".join(self.problems) or "none"),
        ]
        return "\n".join([head, "", "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in lines), ""])


def figures(
    *,
    plan: Plan,
    course: Course,
    ground: Ground,
    fleet: Sequence[ChaosAgent],
    load: Load,
    held_until: Mapping[str, float],
    problems: list[str],
) -> Report:
    """The report of a run that is over."""
    rows = ground.stack.sql("SELECT id, status, error_code, granted_at, completed_at FROM backlog_execution")
    begun: Counter[str] = sum((agent.books.begun() for agent in fleet), Counter())
    ids = {as_id(row["id"]) for row in rows}
    accepted = load.notes.accepted
    peaks = {agent.name: (agent.books.peak(), max(agent.limits)) for agent in fleet}
    back = _slots_back(rows, course, held_until)
    return Report(
        seed=plan.seed, seconds=plan.seconds, database="PostgreSQL" if plan.postgres else "SQLite", store=ground.store_name(),
        agents=plan.agents, slots=plan.slots, tasks=len(load.notes.tasks), accepted=len(accepted),
        refused=sum(task.execution_id is None for task in load.notes.tasks),
        statuses=dict(Counter(_ended(row) for row in rows)),
        answers={str(status or "none"): count for status, count in sorted(load.notes.answers.items())},
        faults=dict(Counter(fault.kind.value for fault in course.began)), messages_stolen=ground.stolen,
        repairs=_repairs(ground), peak=sum(peak for peak, _ in peaks.values()), peaks=peaks,
        lost=sum(task.execution_id not in ids for task in accepted), begun_twice=sum(count > 1 for count in begun.values()),
        wild=_times(course, back, load=load, rows=rows, which=lambda fault: fault not in plan.single()),
        single=_times(course, back, load=load, rows=rows, which=lambda fault: fault in plan.single()),
        slowest=sorted(((round(seconds, 1), one, how, str(fault)) for fault, one, how, seconds in back), reverse=True)[:5],
        problems=problems,
    )  # fmt: skip


Back = list[tuple[Fault, str, str, float]]


def _times(course: Course, back: Back, *, load: Load, rows: Sequence[Mapping[str, Any]], which: Callable[[Fault], bool]) -> Times:
    """How long what these faults took away was missed."""
    emptied = [_moment(fault, course) for fault in course.began if fault.kind in EMPTIED and which(fault)]
    granted = sorted(seconds_of(row["granted_at"]) for row in rows if row["granted_at"])
    accepted = [(task.sent_at, task.answered_at) for task in load.notes.accepted if not task.sync]
    return Times(
        slot_back_after_kill=Spread.of(seconds for fault, _, _, seconds in back if which(fault) and fault.kind in KILLED),
        slot_back_after_freeze=Spread.of(seconds for fault, _, _, seconds in back if which(fault) and fault.kind not in KILLED),
        accepted_after_emptied=Spread.of(min((got - at for sent, got in accepted if sent >= at), default=0.0) for at in emptied),
        granted_after_emptied=Spread.of(next((one - at for one in granted if one > at), 0.0) for at in emptied),
        drained_after_broker=Spread.of(
            drain.seconds for fault, drain in course.drains.items() if which(fault) and drain.seconds is not None and drain.rows
        ),
    )


def _moment(fault: Fault, course: Course) -> float:
    """When the store was empty and there: after a restart, its return."""
    return course.began[fault] if fault.kind is Kind.FLUSH_STORE else course.ended[fault]


def _slots_back(rows: Sequence[Mapping[str, Any]], course: Course, held_until: Mapping[str, float]) -> Back:
    """For each run that was lost with its worker: from the fault until its row was last seen to hold a slot."""
    lost = {as_id(row["id"]): f"{row['error_code']} {row['completed_at']}" for row in rows if row["error_code"] == "worker_lost"}
    return [
        (fault, one, lost[one], held_until.get(one, course.began[fault]) - course.began[fault])
        for fault, ids in course.carried.items()
        for one in ids & lost.keys()
    ]


def _repairs(ground: Ground) -> dict[str, int]:
    """What the workers' logs say was mended, by kind."""
    found: Counter[str] = Counter()
    for _, text in ground.logs():
        for line in text.splitlines():
            if line.startswith("{") and ("repair.done" in line or "slots.rebuilt" in line):
                found[json.loads(line).get("kind", "gate_rebuilt")] += 1
    return dict(found)


def _ended(row: Mapping[str, Any]) -> str:
    return f"{row['status']}: {row['error_code']}" if row["status"] == "failed" else str(row["status"])
