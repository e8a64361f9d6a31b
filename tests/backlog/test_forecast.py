"""Forecasts by pure arithmetic: the real start lies in the span, and `Retry-After` in its band."""

import heapq
import math
import random
from collections.abc import Callable

import pytest

from backlog.forecast import FIRST_GUESS_SECONDS, Outlook, Prospect, jittered, retry_seconds

Draw = Callable[[random.Random], float]
SHAPES: dict[str, Draw] = {
    "even": lambda chance: chance.uniform(5, 15),
    "memoryless": lambda chance: chance.expovariate(0.1),
    "long-tailed": lambda chance: chance.lognormvariate(2, 0.8),
}


def on_the_way(chance: random.Random, draw: Draw) -> tuple[float, float]:
    """How old a run that is looked at by chance is, and how long it goes on: long ones are met more often."""
    runs = [draw(chance) for _ in range(40)]
    [run] = chance.choices(runs, weights=runs)
    age = chance.random() * run
    return age, run - age


def lies_within(chance: random.Random, draw: Draw, *, limit: int, ahead: int, known: int) -> bool:
    """Whether a simulated agent starts the row behind `ahead` others when it was foretold."""
    runs = [draw(chance) for _ in range(known)]
    present = [on_the_way(chance, draw) for _ in range(limit)]
    free_at = [left for _, left in present]
    heapq.heapify(free_at)
    for _ in range(ahead):
        heapq.heapreplace(free_at, free_at[0] + draw(chance))
    span = Outlook(Prospect(runs=runs, ages=[age for age, _ in present], limit=limit), places=ahead + 1).span(ahead + 1)
    return math.floor(span.earliest) <= free_at[0] <= math.ceil(span.latest)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("limit", "ahead"), [(1, 0), (1, 4), (3, 0), (3, 7), (2, 130)])
def test_nearly_every_start_lies_in_its_span(shape: str, limit: int, ahead: int) -> None:
    chance = random.Random(f"{shape} {limit} {ahead}")
    within = [lies_within(chance, SHAPES[shape], limit=limit, ahead=ahead, known=50) for _ in range(40)]
    assert sum(within) >= 0.85 * len(within)


def test_a_span_from_few_runs_is_wider_than_one_from_many() -> None:
    runs = [5.0, 7.5, 10.0, 12.5, 15.0]
    few, many = (Outlook(Prospect(runs=known, ages=[1.0], limit=1), places=5).span(5) for known in (runs, runs * 10))
    assert few.latest - few.earliest > 1.3 * (many.latest - many.earliest)


def test_equal_runs_leave_no_doubt() -> None:
    outlook = Outlook(Prospect(runs=[10.0] * 8, ages=[4.0, 1.0], limit=2), places=300)
    places = [1, 2, 3, 4, 100, 101, 300]
    assert [outlook.mean(place) for place in places] == pytest.approx([6, 9, 16, 19, 499, 504, 1499], abs=4)
    assert [outlook.span(place).latest - outlook.span(place).earliest for place in places] == pytest.approx([0] * 7, abs=1e-6)


def test_a_free_slot_starts_the_first_at_once() -> None:
    outlook = Outlook(Prospect(runs=[10.0] * 8, ages=[4.0], limit=3), places=3)
    assert [outlook.mean(place) for place in (1, 2, 3)] == [0, 0, 6]


def test_above_a_cut_limit_the_first_ends_open_nothing() -> None:
    outlook = Outlook(Prospect(runs=[10.0] * 8, ages=[9.0, 7.0, 2.0], limit=1), places=1)
    assert outlook.mean(1) == 8


def test_a_run_that_has_outlived_all_may_end_any_moment_and_by_its_limit() -> None:
    span = Outlook(Prospect(runs=[10.0] * 8, ages=[58.0], limit=1, cap_seconds=60), places=1).span(1)
    assert 0 <= span.earliest < 1
    assert span.latest <= 2


def test_the_same_figures_give_the_same_span() -> None:
    prospect = Prospect(runs=[1.0, 5.0, 9.0, 30.0, 2.0], ages=[3.0], limit=1)
    assert Outlook(prospect, places=9).span(3, 9) == Outlook(prospect, places=9).span(3, 9)


@pytest.mark.parametrize(
    ("prospect", "place", "expected"),
    [
        (Prospect(runs=[10.0] * 5, ages=[4.0], limit=1), 1, 6),
        (Prospect(runs=[10.0] * 5, ages=[4.0], limit=1), 4, 36),
        (Prospect(runs=[10.0] * 5, ages=[4.0, 8.0], limit=2), 2, 6),
        (Prospect(runs=[], ages=[0.0], limit=1), 1, FIRST_GUESS_SECONDS),
        (Prospect(runs=[10.0] * 5, ages=[], limit=1), 1, 1),
        (Prospect(runs=[0.01] * 5, ages=[0.0], limit=1), 1, 1),
        (Prospect(runs=[100.0] * 5, ages=[0.0], limit=1), 50, 300),
    ],
)
def test_retry_after_is_when_a_place_frees_and_a_fifth_more_at_most(prospect: Prospect, place: int, expected: float) -> None:
    answers = {retry_seconds(prospect, place=place) for _ in range(40)}
    assert all(type(seconds) is int for seconds in answers)
    assert expected <= min(answers) <= max(answers) <= min(300, math.ceil(1.2 * expected))


def test_callers_refused_together_are_spread() -> None:
    assert len({jittered(100) for _ in range(50)}) > 5
