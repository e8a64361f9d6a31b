"""What-if: an agent's last day or week under other limits, worked out once for all who ask the same."""

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from threading import Lock
from typing import Any

from backlog.models import Execution
from backlog.pasts import About, past_of
from backlog.what_if import Figures, curve, figures_of_reality
from core.conf import conf
from core.errors import Throttled

#: Of one agent, the newest.
MOST_ROWS = 100_000
#: Rows times limits: about three seconds of a processor.
MOST_STEPS = 300_000
KEPT_SECONDS = 60.0
MOST_KEPT = 64
PATIENCE_SECONDS = 5.0


class Window(StrEnum):
    """How far back it goes."""

    DAY = "24h"
    WEEK = "7d"

    @property
    def length(self) -> timedelta:
        """As a span of time."""
        return timedelta(days=1 if self is Window.DAY else 7)


@dataclass(frozen=True, kw_only=True)
class Question:
    """An agent's window under each of the limits, with so many in line at most."""

    agent_id: int
    window: Window
    limits: range
    depth: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The window as it was, and `{limit: Figures}` as it would have been; their times are milliseconds."""

    about: About
    actual: Figures
    results: dict[int, Figures]


@dataclass
class _Answers:
    """The last ones, each for `KEPT_SECONDS` and as long as its agent's rows stay as they were."""

    kept: OrderedDict[Any, tuple[float, Answer]] = field(default_factory=OrderedDict)

    def find(self, key: Any) -> Answer | None:
        made, answer = self.kept.get(key, (0.0, None))
        return answer if time.monotonic() - made < KEPT_SECONDS else None

    def keep(self, key: Any, answer: Answer) -> None:
        self.kept[key] = (time.monotonic(), answer)
        self.kept.move_to_end(key)
        while len(self.kept) > MOST_KEPT:
            self.kept.popitem(last=False)


_answers = _Answers()
#: One replay at a time in a process: it is nothing but arithmetic, and others want their processor too.
_working = Lock()


def answer_to(question: Question) -> Answer:
    """The answer, at most `KEPT_SECONDS` old. Raises `Throttled` while other replays keep this process busy."""
    key = (question, _newest(question.agent_id))
    if (known := _answers.find(key)) is not None:
        return known
    if not _working.acquire(timeout=PATIENCE_SECONDS):
        raise Throttled(seconds=PATIENCE_SECONDS)
    try:
        if (found := _answers.find(key)) is None:
            found = _worked_out(question)
            _answers.keep(key, found)
        return found
    finally:
        _working.release()


def _worked_out(question: Question) -> Answer:
    most = min(MOST_ROWS, MOST_STEPS // len(question.limits))
    expiry = timedelta(seconds=conf.expiry_seconds)
    past = past_of(question.agent_id, window=question.window.length, most=most, expiry=expiry)
    return Answer(
        about=past.about,
        actual=figures_of_reality(past.history, past.spans),
        results=curve(past.history, limits=question.limits, depth=question.depth),
    )


def _newest(agent_id: int) -> tuple[Any, Any]:
    """The agent's last row and its last end: with another of either its figures are others."""
    rows = Execution.objects.filter(agent_id=agent_id)
    last = rows.order_by("-created_at", "-id").values_list("pk")
    ended = rows.filter(started_at__isnull=False, completed_at__isnull=False).order_by("-completed_at").values_list("completed_at")
    return last.first(), ended.first()
