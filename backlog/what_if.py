"""What would have become of an agent's arrivals under another limit: a replay of what is known of them, without a clock.

Arrivals come when they really came and hold a slot for as long as they really held it. In between, the replay does what the
gate and the line do: a newcomer takes a free slot, or its place in line (the front, the higher priority, the longer wait), or
is refused; a freed slot goes to the first in line that may start. It begins as things really stood: who held a slot then
holds it, who waited waits. O(n log n); times are any numbers that add up, those in integers exactly.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from .presence import MOST_WAITING


class Arrival(NamedTuple):
    """One row, as far as a replay needs it. They are given in the order of `at`; equals in the order of the line."""

    #: When it took its place in line.
    at: float
    #: How long it holds a slot; from the beginning, for one that `holds` one then.
    run: float
    front: bool = False
    priority: int = 5
    #: When it leaves the line unless it has started.
    leaves: float = math.inf
    #: Arrivals of one session run one after another.
    session: Hashable = None
    #: It is in a slot when the replay begins.
    holds: bool = False
    #: It is refused where it finds no slot.
    never_waits: bool = False
    #: It waits only while its caller does; few such may.
    attended: bool = False


@dataclass(frozen=True, kw_only=True)
class History:
    """The arrivals of one agent from `since` to `until`, and before them those that waited or ran at `since`."""

    arrivals: Sequence[Arrival]
    since: float
    until: float

    @property
    def carried(self) -> int:
        """How many of the arrivals, the first ones, came before `since`: they are played, not counted."""
        return bisect_left(self.arrivals, self.since, key=lambda arrival: arrival.at)


@dataclass(kw_only=True)
class Replay:
    """What became of each arrival, and the peaks."""

    #: Of each arrival; None for one that never started.
    starts: list[float | None]
    rejected: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    peak_running: int = 0
    peak_waiting: int = 0


class _Player:
    """One replay under way. `_gone` marks what has left the line, so that heaps need no search.

    Each step that most arrivals don't need is looked at before it is called: they are a hundred thousand.
    """

    def __init__(self, history: History, *, limit: int, depth: float) -> None:
        self._arrivals, self._since = history.arrivals, history.since
        self._limit, self._depth = limit, depth
        self._running = self._waiting = self._attended = 0
        self._ends: list[tuple[float, int]] = []
        self._leaves: list[tuple[float, int]] = []
        self._ready: list[tuple[bool, int, int]] = []
        self._gone = bytearray(len(history.arrivals))
        self._sessions: dict[Hashable, deque[int]] = {}
        self.replay = Replay(starts=[None] * len(history.arrivals))

    def play(self) -> Replay:
        """All of it; behind the last arrival until the line is empty."""
        self._seat_holders()
        ends, leaves, since = self._ends, self._leaves, self._since
        for index, arrival in enumerate(self._arrivals):
            if arrival.holds:
                continue
            now = max(since, arrival.at)
            if (ends and ends[0][0] <= now) or (leaves and leaves[0][0] <= now):
                self._pass_until(now)
            self._arrive(index, arrival, now)
        self._pass_until(math.inf)
        return self.replay

    def _seat_holders(self) -> None:
        # All of them before anybody else comes: they were there first, be it over the limit.
        for index, arrival in enumerate(self._arrivals):
            if arrival.holds:
                self._join_session(index, arrival)
                self._start(index, self._since)

    def _pass_until(self, now: float) -> None:
        """Whatever ends or leaves the line up to `now`; who leaves at the moment in which a slot frees doesn't get it."""
        ends, leaves = self._ends, self._leaves
        while True:
            if leaves and leaves[0][0] <= now and not (ends and ends[0][0] < leaves[0][0]):
                _, index = heappop(leaves)
                if self.replay.starts[index] is None:
                    self._leave(index)
            elif ends and ends[0][0] <= now:
                at, index = heappop(ends)
                self._running -= 1
                self._follow(index)
                if self._ready:
                    self._fill(at)
            else:
                return

    def _arrive(self, index: int, arrival: Arrival, now: float) -> None:
        first = arrival.session is None or not self._sessions.get(arrival.session)
        if first and self._running < self._limit:
            self._start(index, now)
        elif self._is_refused(arrival):
            self.replay.rejected.append(index)
            return
        else:
            self._wait(index, arrival, ready=first)
        if arrival.session is not None:
            self._join_session(index, arrival)

    def _is_refused(self, arrival: Arrival) -> bool:
        if arrival.at < self._since:
            return False
        return arrival.never_waits or self._waiting >= self._depth or (arrival.attended and self._attended >= MOST_WAITING)

    def _wait(self, index: int, arrival: Arrival, *, ready: bool) -> None:
        self._waiting += 1
        self._attended += arrival.attended
        self.replay.peak_waiting = max(self.replay.peak_waiting, self._waiting)
        if arrival.leaves < math.inf:
            heappush(self._leaves, (arrival.leaves, index))
        if ready:
            self._put_in_line(index, arrival)

    def _put_in_line(self, index: int, arrival: Arrival) -> None:
        heappush(self._ready, (not arrival.front, -arrival.priority, index))

    def _leave(self, index: int) -> None:
        self._gone[index] = 1
        self._unwait(index)
        self.replay.left.append(index)
        self._follow(index)

    def _fill(self, now: float) -> None:
        while self._ready and self._running < self._limit:
            index = heappop(self._ready)[2]
            if not self._gone[index]:
                self._unwait(index)
                self._start(index, now)

    def _unwait(self, index: int) -> None:
        self._waiting -= 1
        self._attended -= self._arrivals[index].attended

    def _start(self, index: int, now: float) -> None:
        self.replay.starts[index] = now
        self._running += 1
        self.replay.peak_running = max(self.replay.peak_running, self._running)
        heappush(self._ends, (now + self._arrivals[index].run, index))

    def _join_session(self, index: int, arrival: Arrival) -> None:
        if arrival.session is not None:
            self._sessions.setdefault(arrival.session, deque()).append(index)

    def _follow(self, index: int) -> None:
        """Once `index` is over, let the next of its session be startable."""
        session = self._arrivals[index].session
        if session is None or (line := self._sessions[session])[0] != index:
            return
        line.popleft()
        while line and self._gone[line[0]]:
            line.popleft()
        if line:
            self._put_in_line(line[0], self._arrivals[line[0]])


def replay(history: History, *, limit: int, depth: float = math.inf) -> Replay:
    """What would have become of the arrivals with at most `limit` slots, and `depth` in line at most."""
    return _Player(history, limit=limit, depth=depth).play()


class Span(NamedTuple):
    """One arrival as it really was; None for what has not happened by `until`."""

    at: float
    granted: float | None
    ended: float | None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """How a window went, or would have gone. Of arrivals in the window alone, but for the peaks and the mean."""

    started: int
    #: None where nothing started.
    wait_p50: float | None
    wait_p95: float | None
    peak_running: int
    peak_waiting: int
    #: Slots in use on average over the window.
    mean_running: float
    rejected: int | None = None
    #: Gave up or expired in line.
    left: int = 0


def figures_of(history: History, played: Replay) -> Figures:
    """The figures of a replay."""
    first, starts, arrivals = history.carried, played.starts, history.arrivals
    waits = sorted(start - arrivals[index].at for index, start in enumerate(starts) if index >= first and start is not None)
    spans = ((start, start + arrivals[index].run) for index, start in enumerate(starts) if start is not None)
    return Figures(
        started=len(waits), wait_p50=percentile(waits, 0.5), wait_p95=percentile(waits, 0.95), peak_running=played.peak_running,
        peak_waiting=played.peak_waiting, mean_running=_mean(history, spans), rejected=len(played.rejected),
        left=sum(index >= first for index in played.left),
    )  # fmt: skip


def figures_of_reality(history: History, spans: Sequence[Span]) -> Figures:
    """The same figures of what really happened; how many were refused isn't known."""
    since, until = history.since, history.until
    own = [span for span in spans if span.at >= since]
    waits = sorted(span.granted - span.at for span in own if span.granted is not None)
    held = [(span.granted, _or(span.ended, until)) for span in spans if span.granted is not None]
    waited = [(span.at, _or(span.granted, _or(span.ended, until))) for span in spans]
    return Figures(
        started=len(waits), wait_p50=percentile(waits, 0.5), wait_p95=percentile(waits, 0.95),
        peak_running=_peak(held, since), peak_waiting=_peak(waited, since), mean_running=_mean(history, held),
        left=sum(span.granted is None and span.ended is not None for span in own),
    )  # fmt: skip


def curve(history: History, *, limits: Iterable[int], depth: float = math.inf) -> dict[int, Figures]:
    """`{limit: Figures}`. Limits above what is ever in use at once are alike, and replayed once."""
    found: dict[int, Figures] = {}
    unbound: Figures | None = None
    for limit in sorted(set(limits), reverse=True):
        if unbound is None or limit < unbound.peak_running:
            figures = figures_of(history, replay(history, limit=limit, depth=depth))
            unbound = figures if figures.peak_running < limit else None
            found[limit] = figures
        else:
            found[limit] = unbound
    return dict(sorted(found.items()))


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The least of the values that so large a share of them doesn't exceed; None of none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _mean(history: History, spans: Iterable[tuple[float, float]]) -> float:
    since, until = history.since, history.until
    return sum(max(0, min(end, until) - max(start, since)) for start, end in spans) / (until - since) if until > since else 0.0


def _peak(spans: Iterable[tuple[float, float]], since: float) -> int:
    """The most at once; one that ends as another begins makes room for it."""
    steps = sorted(step for start, end in spans if end > max(start, since) for step in ((max(start, since), 1), (end, -1)))
    now = peak = 0
    for _, step in sorted(steps, key=lambda step: (step[0], step[1])):
        now += step
        peak = max(peak, now)
    return peak
