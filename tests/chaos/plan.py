"""What a chaos run is to be like."""

from dataclasses import dataclass

from tests.chaos.ground import kinds_for
from tests.chaos.schedule import Fault, Kind, schedule


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
    gap: float = 2.0
    kinds: tuple[Kind, ...] = ()

    def faults(self) -> tuple[Fault, ...]:
        """The schedule; the seed alone decides, for the same length and kinds."""
        kinds = self.kinds or kinds_for(postgres=self.postgres)
        return schedule(seed=self.seed, seconds=self.seconds, kinds=kinds, gap=self.gap, workers=self.workers, webs=self.webs)

    @property
    def seconds_each(self) -> float:
        """How long tasks take on average, so that slots are in use for the most part and lines form."""
        return 0.85 * self.slots / self.rate
