"""Figures and the little statistics behind them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """Which way a ratio should go."""

    LOWER = "≤"
    HIGHER = "≥"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the results. `ratio` is what counts; `ours` and `floor` tell what it was made of."""

    what: str
    ours: str
    floor: str
    ratio: float
    goal: float | None = None
    better: Better = Better.LOWER
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal was reached in this run; None where there is none."""
        if self.goal is None:
            return None
        return self.ratio <= self.goal if self.better == Better.LOWER else self.ratio >= self.goal


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0..1) of the values don't exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def spread(ratios: Sequence[float]) -> str:
    """The smallest and the largest of the turns' ratios: how far the one that is shown can be trusted."""
    return f"{min(ratios):.2f}–{max(ratios):.2f}"


def ms(seconds: float) -> str:
    """Milliseconds, three digits that matter."""
    return f"{seconds * 1000:.3g} ms"
