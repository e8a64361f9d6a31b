"""A schedule carried out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.ground import CALM_SECONDS, Ground
from tests.chaos.schedule import Fault, Kind
from tests.chaos.watch import DrainWatch

Say = Callable[[str], object]


@dataclass
class Course:
    """What was done and when, on this host's clock."""

    began: dict[Fault, float] = field(default_factory=dict)
    ended: dict[Fault, float] = field(default_factory=dict)
    drains: list[DrainWatch] = field(default_factory=list)

    def wait(self) -> None:
        """Until all is known."""
        for drain in self.drains:
            drain.join(CALM_SECONDS)


def follow(faults: tuple[Fault, ...], *, ground: Ground, seconds: float, say: Say) -> Course:
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
            course.began[fault] = time.time()
            ground.begin(fault)
        if ends and fault.kind is Kind.KILL_BROKER:
            course.drains.append(DrainWatch(ground.stack))
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return course
