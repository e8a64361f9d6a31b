"""A schedule carried out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.agents.server import AgentServer
from tests.chaos.carried import carried_by
from tests.chaos.ground import CALM_SECONDS, Ground
from tests.chaos.schedule import WORKER_KINDS, Fault, Kind
from tests.chaos.watch import DrainWatch

Say = Callable[[str], object]


@dataclass
class Course:
    """What was done and when, on this host's clock."""

    began: dict[Fault, float] = field(default_factory=dict)
    ended: dict[Fault, float] = field(default_factory=dict)
    #: What each worker that was taken away was at work on.
    carried: dict[Fault, frozenset[str]] = field(default_factory=dict)
    drains: dict[Fault, DrainWatch] = field(default_factory=dict)

    def wait(self) -> None:
        """Until all is known."""
        for drain in self.drains.values():
            drain.join(CALM_SECONDS)


def follow(faults: tuple[Fault, ...], *, ground: Ground, server: AgentServer, seconds: float, say: Say) -> Course:
    """Do what the schedule says, when it says so."""
    course, began = Course(), time.monotonic()
    acts = sorted(
        [(fault.at, 0, number, fault) for number, fault in enumerate(faults)]
        + [(fault.at + fault.lasts, 1, number, fault) for number, fault in enumerate(faults)]
    )
    for at, ends, _, fault in acts:
        time.sleep(max(0.0, began + at - time.monotonic()))
        if ends:
            ground.end(fault)
            course.ended[fault] = time.time()
        else:
            say(str(fault))
            if fault.kind in WORKER_KINDS:
                course.carried[fault] = carried_by(ground.seats[fault.target].pid, server=server)
            course.began[fault] = time.time()
            ground.begin(fault)
        if ends and fault.kind is Kind.KILL_BROKER:
            course.drains[fault] = DrainWatch(ground.stack)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return course
