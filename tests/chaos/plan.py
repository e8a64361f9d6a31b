"""What a chaos run is to be like."""

from dataclasses import dataclass, replace

from tests.chaos.ground import kinds_for
from tests.chaos.schedule import Fault, Kind, schedule

#: From the last wild fault to the first single one, and the length of a round of those.
SETTLE_SECONDS = 30.0
ROUND_SECONDS = 75.0
#: The slots of a killed worker are back before the store is emptied, which would give its runs fresh leases.
ROUND = (
    Fault(at=0.0, lasts=2.0, kind=Kind.KILL_WORKER, target=1),
    Fault(at=42.0, lasts=0.0, kind=Kind.FLUSH_STORE),
    Fault(at=50.0, lasts=1.0, kind=Kind.KILL_STORE),
    Fault(at=60.0, lasts=6.0, kind=Kind.KILL_BROKER),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run."""

    seed: int
    seconds: float
    agents: int = 6
    slots: int = 18
    workers: int = 2
    webs: int = 2
    postgres: bool = False
    rate: float = 8.0
    clients: int = 6
    gap: float = 1.6
    kinds: tuple[Kind, ...] = ()
    #: Rounds of single faults after the schedule, far apart, for figures that no other fault disturbs.
    rounds: int = 0

    def faults(self) -> tuple[Fault, ...]:
        """The schedule; the seed alone decides, for the same length and kinds."""
        kinds = self.kinds or kinds_for(postgres=self.postgres)
        wild = schedule(seed=self.seed, seconds=self.seconds, kinds=kinds, gap=self.gap, workers=self.workers, webs=self.webs)
        return wild + self.single()

    def single(self) -> tuple[Fault, ...]:
        """The faults that come one by one."""
        starts = [self.seconds + SETTLE_SECONDS + number * ROUND_SECONDS for number in range(self.rounds)]
        return tuple(
            replace(fault, at=start + fault.at, target=number % self.workers if fault.target else 0)
            for number, start in enumerate(starts)
            for fault in ROUND
        )

    @property
    def whole_seconds(self) -> float:
        """How long faults go on."""
        return self.seconds + (SETTLE_SECONDS + self.rounds * ROUND_SECONDS if self.rounds else 0.0)

    @property
    def seconds_each(self) -> float:
        """How long tasks take on average, so that slots are in use for the most part and lines form."""
        return 0.6 * self.slots / self.rate
