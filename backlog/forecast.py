"""When places free, told from how long an agent's last runs took: pure arithmetic, the same answer for the same figures.

What is known is played through a number of times: each present run goes on as long as one of the earlier ones that took
longer than it has taken so far, each row in line as long as one of them, drawn by chance. Where the line is long only its
beginning is played; behind it the mean and the spread grow as those of sums do.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace
from statistics import NormalDist, fmean, pstdev, pvariance

#: A span from fewer runs would be a guess.
FEWEST_RUNS = 5
#: Assumed for an agent that has no run behind it, where an answer is due all the same.
FIRST_GUESS_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 300
#: The most that chance adds, so that callers refused together don't come back together.
JITTER = 0.2
DRAWS, FEW_DRAWS = 80, 24
#: Places in line that are played through; the rest is extrapolated.
PLAYED_PLACES = 100
#: How much of what was played lies within a span, and the same for the normal distribution.
_TAIL, _DEVIATIONS = 0.025, 1.96
_SEED = 20
#: Drawn once: a draw from these costs a tenth of one from the distribution.
_NOISE = [NormalDist().inv_cdf((number + 0.5) / 500) for number in range(500)]


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """What is known of slots: seconds that the last runs took, and for how long the present ones have been at it.

    `limit` is how many may run at once. `ages` may be more (after a cut); `cap_seconds` is the longest a run may take.
    """

    runs: Sequence[float]
    ages: Sequence[float]
    limit: int
    cap_seconds: float = math.inf


@dataclass(frozen=True, kw_only=True)
class Span:
    """Seconds from now between which a start is expected."""

    earliest: float
    latest: float


class Outlook:
    """When each place of one line comes to start; place 1 is the next to be given a slot."""

    def __init__(self, prospect: Prospect, *, places: int, draws: int = DRAWS) -> None:
        """Play the first `places` through, at most `PLAYED_PLACES`."""
        self._runs = sorted(max(0.0, run) for run in prospect.runs) or [FIRST_GUESS_SECONDS]
        self._deviation = pstdev(self._runs)
        self._limit = max(1, prospect.limit)
        self._played = max(1, min(places, PLAYED_PLACES))
        self._starts = self._play(prospect, draws)

    def mean(self, place: int) -> float:
        """The seconds until `place` starts, on average."""
        return fmean(self._starts[min(place, self._played) - 1]) + self._behind(place) * fmean(self._runs) / self._limit

    def span(self, first: int, last: int | None = None) -> Span:
        """The seconds in which a start at one of the places `first` to `last` lies, but for about one in twenty."""
        return Span(earliest=self._quantile(first, _TAIL), latest=self._quantile(last or first, 1 - _TAIL))

    def _quantile(self, place: int, share: float) -> float:
        played = self._starts[min(place, self._played) - 1]
        if not (behind := self._behind(place)):
            return played[min(len(played) - 1, int(share * len(played)))]
        # Of the mean itself only as much is known as the runs tell.
        unsure = (place / self._limit) ** 2 * 2 / len(self._runs) + behind / self._limit**2
        deviation = math.sqrt(pvariance(played) + unsure * self._deviation**2)
        return max(0.0, self.mean(place) + math.copysign(_DEVIATIONS, share - 0.5) * deviation)

    def _behind(self, place: int) -> int:
        return max(0, place - self._played)

    def _play(self, prospect: Prospect, draws: int) -> list[list[float]]:
        """The start of each played place in each draw, in order."""
        chance = random.Random(_SEED)  # noqa: S311 - the same figures give the same answer
        rounds = [self._round(prospect, chance) for _ in range(draws)]
        return [sorted(starts) for starts in zip(*rounds, strict=True)]

    def _round(self, prospect: Prospect, chance: random.Random) -> list[float]:
        known = self._might_have_been(chance)
        ends = sorted(_left(known, age, prospect.cap_seconds, chance) for age in prospect.ages)
        # Above the limit the first ones to end open nothing.
        free_at = ends[max(0, len(ends) - self._limit) :]
        free_at = [0.0] * (self._limit - len(free_at)) + free_at
        starts = []
        for run in chance.choices(known, k=self._played):
            starts.append(free_at[0])
            heapreplace(free_at, free_at[0] + run)
        return starts

    def _might_have_been(self, chance: random.Random) -> list[float]:
        """Runs as the last ones might as well have been, in order: the fewer there were, the less is known of them."""
        count, deviation = len(self._runs), self._deviation
        all_off = chance.gauss(0, deviation / math.sqrt(count))
        each_off = deviation * count**-0.2
        if not deviation:
            return self._runs
        drawn, noise = chance.choices(self._runs, k=count), chance.choices(_NOISE, k=count)
        return sorted([max(0.0, run + all_off + each_off * off) for run, off in zip(drawn, noise, strict=True)])


def _left(known: list[float], age: float, cap: float, chance: random.Random) -> float:
    """The seconds that a run of this age goes on."""
    longer = bisect_right(known, age)
    if longer < len(known):
        return known[longer + int(chance.random() * (len(known) - longer))] - age
    # It has outlived them all: any moment now, or as long again.
    return min(chance.random() * chance.choice(known), max(0.0, cap - age))


def retry_seconds(prospect: Prospect, *, place: int = 1) -> int:
    """`Retry-After` for whoever wants the place `place` in line: whole seconds, 1..300, up to 20 % more by chance."""
    return jittered(Outlook(prospect, places=place, draws=FEW_DRAWS).mean(place))


def jittered(seconds: float) -> int:
    """The seconds as `Retry-After` tells them: whole, 1..300, up to 20 % more by chance."""
    more = seconds * (1 + JITTER * random.random())  # noqa: S311 - spreads callers, guards nothing
    return min(LONGEST_RETRY_AFTER_SECONDS, max(1, math.ceil(more)))
