"""Replays of arrivals under another limit: what must hold of every history, and what the line does in each case."""

import heapq
import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backlog.what_if import Arrival, History, Span, curve, figures_of, figures_of_reality, percentile, replay

END = 1000
quick = settings(max_examples=40, deadline=None)
times, runs = st.integers(0, END), st.integers(0, 60)


def history(*arrivals: Arrival, since: float = 0) -> History:
    """A history up to `END`."""
    return History(arrivals=sorted(arrivals, key=lambda arrival: arrival.at), since=since, until=END)


plain = st.lists(st.tuples(times, runs).map(lambda pair: Arrival(*pair)), min_size=1, max_size=40).map(lambda arrivals: history(*arrivals))
any_kind = st.lists(
    st.builds(
        lambda at, patience, **kind: Arrival(at=at, leaves=at + patience, **kind),
        at=times, patience=st.integers(0, 90) | st.just(math.inf), run=runs, front=st.booleans(), priority=st.integers(0, 9),
        session=st.none() | st.integers(1, 3), never_waits=st.booleans(), attended=st.booleans(),
    ),
    min_size=1, max_size=40,
).map(lambda arrivals: history(*arrivals))  # fmt: skip
limits, depths = st.integers(1, 6), st.integers(0, 10) | st.just(math.inf)


def in_use(played: History, starts: list[float | None]) -> int:
    """The most that hold a slot at once, counted one by one; a run without length holds none."""
    spans = [(start, start + arrival.run) for arrival, start in zip(played.arrivals, starts, strict=True) if start is not None]
    return max((sum(begun <= start < ended for begun, ended in spans) for start, _ in spans), default=0)


# -- What holds of every history -----------------------------------------------------------------------------------------
@quick
@given(any_kind, limits, depths)
def test_each_arrival_has_one_outcome_and_no_more_than_the_limit_ever_run(played: History, limit: int, depth: float) -> None:
    outcome = replay(played, limit=limit, depth=depth)
    started = {index for index, start in enumerate(outcome.starts) if start is not None}
    assert sorted([*started, *outcome.rejected, *outcome.left]) == list(range(len(played.arrivals)))
    assert in_use(played, outcome.starts) <= outcome.peak_running <= limit
    assert outcome.peak_waiting <= depth
    assert all(played.arrivals[index].at <= outcome.starts[index] <= played.arrivals[index].leaves for index in started)


@quick
@given(any_kind, limits)
def test_runs_of_one_session_follow_each_other_in_the_order_of_their_arrival(played: History, limit: int) -> None:
    starts = replay(played, limit=limit).starts
    for session in (1, 2, 3):
        mine = [index for index, arrival in enumerate(played.arrivals) if arrival.session == session and starts[index] is not None]
        assert all(starts[one] + played.arrivals[one].run <= starts[next_one] for one, next_one in pairwise(mine))


@quick
@given(plain)
def test_without_a_limit_nobody_waits_and_the_most_in_use_is_enough(played: History) -> None:
    free = replay(played, limit=10_000)
    assert free.starts == [arrival.at for arrival in played.arrivals]
    assert free.peak_waiting == 0
    assert replay(played, limit=max(1, free.peak_running)).starts == free.starts


@quick
@given(plain)
def test_no_wait_gets_longer_with_more_slots(played: History) -> None:
    by_limit = [replay(played, limit=limit).starts for limit in range(1, 6)]
    assert all(more <= less for fewer, with_one_more in pairwise(by_limit) for less, more in zip(fewer, with_one_more, strict=True))


@quick
@given(plain, limits)
def test_the_limit_that_there_was_gives_the_waits_that_there_were(played: History, limit: int) -> None:
    free_at = [0] * limit
    spans = []
    for arrival in played.arrivals:
        start = max(arrival.at, free_at[0])
        heapq.heapreplace(free_at, start + arrival.run)
        spans.append(Span(arrival.at, start, start + arrival.run))
    real, replayed = figures_of_reality(played, spans), figures_of(played, replay(played, limit=limit))
    assert replay(played, limit=limit).starts == [span.granted for span in spans]
    assert (replayed.wait_p50, replayed.wait_p95, replayed.started) == (real.wait_p50, real.wait_p95, real.started)
    assert replayed.mean_running == real.mean_running
    assert real.peak_waiting <= replayed.peak_waiting


@quick
@given(any_kind, depths)
def test_a_curve_tells_of_each_limit_what_a_replay_of_its_own_would(played: History, depth: float) -> None:
    assert curve(played, limits=range(1, 9), depth=depth) == {
        limit: figures_of(played, replay(played, limit=limit, depth=depth)) for limit in range(1, 9)
    }


# -- The line ------------------------------------------------------------------------------------------------------------
def test_a_freed_slot_goes_to_the_front_then_to_the_higher_priority_then_to_the_longer_wait() -> None:
    line = [Arrival(1, 10), Arrival(2, 10), Arrival(3, 10, priority=9), Arrival(4, 10, front=True, priority=0)]
    assert replay(history(Arrival(0, 10), *line), limit=1).starts == [0, 30, 40, 20, 10]


def test_beyond_the_depth_arrivals_are_refused_and_never_run() -> None:
    outcome = replay(history(*(Arrival(at, 100) for at in range(5))), limit=1, depth=2)
    assert (outcome.starts, outcome.rejected) == ([0, 100, 200, None, None], [3, 4])


def test_who_never_waits_is_refused_where_no_slot_is_free() -> None:
    outcome = replay(history(Arrival(0, 10), Arrival(5, 10, never_waits=True), Arrival(10, 10, never_waits=True)), limit=1)
    assert (outcome.starts, outcome.rejected) == ([0, None, 10], [1])


def test_of_turns_that_wait_for_their_callers_three_wait_at_once() -> None:
    outcome = replay(history(Arrival(0, 10), *(Arrival(at, 10, attended=True) for at in range(1, 6)), Arrival(6, 1)), limit=1)
    assert (outcome.rejected, outcome.peak_waiting) == ([4, 5], 4)


def test_who_leaves_the_line_makes_room_in_it_and_for_the_next_of_its_session() -> None:
    line = [Arrival(1, 5, leaves=4, session="s"), Arrival(2, 5, session="s"), Arrival(3, 5), Arrival(5, 5)]
    outcome = replay(history(Arrival(0, 10), *line), limit=1, depth=2)
    assert (outcome.starts, outcome.left, outcome.rejected) == ([0, None, 10, None, 15], [1], [3])


@pytest.mark.parametrize(("limit", "starts"), [(1, [0, 0, 20, None]), (2, [0, 0, 10, None]), (3, [0, 0, 0, 10])])
def test_a_replay_begins_as_things_stood(limit: int, starts: list[float | None]) -> None:
    """Two are in slots, be it above the limit; one is in line, which has room for one; what comes later is counted alone."""
    carried = [Arrival(-30, 20, holds=True), Arrival(-20, 10, holds=True), Arrival(-10, 10, leaves=500)]
    played = history(*carried, Arrival(5, 10))
    outcome = replay(played, limit=limit, depth=1)
    assert outcome.starts == starts
    assert figures_of(played, outcome).started == (limit == 3)


# -- Figures -------------------------------------------------------------------------------------------------------------
def test_reality_counts_what_started_and_what_gave_up_and_sees_the_rest_in_its_peaks() -> None:
    spans = [Span(-50, -40, 100), Span(0, 0, 250), Span(10, 100, 350), Span(20, None, 60), Span(900, None, None)]
    real = figures_of_reality(history(since=0), spans)
    assert (real.started, real.wait_p50, real.wait_p95, real.left, real.rejected) == (2, 0, 90, 1, None)
    assert (real.peak_running, real.peak_waiting, real.mean_running) == (2, 2, 0.6)


def test_nothing_started_has_no_waits() -> None:
    nothing = figures_of(history(), replay(history(), limit=3))
    assert (nothing.started, nothing.wait_p50, nothing.wait_p95, nothing.peak_running, nothing.mean_running) == (0, None, None, 0, 0)


@pytest.mark.parametrize(("share", "value"), [(0.5, 10), (0.95, 19), (1, 20), (0, 1)])
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile(range(1, 21), share) == value


@pytest.mark.parametrize(
    "kind", [lambda at: Arrival(at, 40), lambda at: Arrival(at, 40, priority=at % 10, session=at % 50, leaves=at + 50)]
)
def test_the_work_grows_with_the_arrivals_and_not_with_their_square(kind: Callable[[int], Arrival]) -> None:
    """Ten thousand that nearly all wait; by squares it would take minutes."""
    outcome = replay(history(*(kind(at) for at in range(10_000))), limit=2)
    assert outcome.peak_waiting > 0
