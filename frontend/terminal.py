"""The fleet in a terminal: one reading of it, as a table and as JSON."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from backlog import selectors as backlog
from backlog.selectors import database_now
from capacity.health import health_of
from capacity.selectors import Meter
from fleet.health import Health
from fleet.selectors import living_agents

from .levels import level_of
from .load import load_of

UNKNOWN = "The slot store can't be asked: who runs is unknown."
MOST_CELLS = 20
_STYLES = {"idle": "dim", "low": "green", "medium": "yellow", "high": "dark_orange", "full": "red", "unknown": "dim"}
#: Who wants looking at stands first where not all fit.
_URGENCY = (Health.OVER_LIMIT, Health.AT_CAPACITY, Health.BACKLOGGED, Health.PAUSED, Health.UNKNOWN, Health.ACTIVE, Health.IDLE)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One agent at one moment."""

    name: str
    meter: Meter
    oldest_wait_seconds: int | None

    @property
    def health(self) -> Health:
        """The one word for it."""
        return health_of(self.meter)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return self.meter.as_dict() | {"health": self.health.value, "oldest_wait_seconds": self.oldest_wait_seconds}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The agents at one moment, by name; not `known`: who runs can't be told."""

    at: datetime
    rows: list[Row]
    known: bool

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"at": self.at.isoformat(), "known": self.known, "agents": {row.name: row.as_dict() for row in self.rows}}

    @property
    def summary(self) -> str:
        """The sums in one line."""
        running = sum(row.meter.active or 0 for row in self.rows)
        waiting, slots = sum(row.meter.queued for row in self.rows), sum(row.meter.max for row in self.rows)
        used = f"{running} of {slots} slots in use" if self.known else UNKNOWN
        return f"{len(self.rows)} agents · {used} · {waiting} waiting"


def read(*, name: str | None = None) -> Reading:
    """The fleet as it is, or one agent of it, by a bounded number of queries; empty where there is no such agent."""
    agents = living_agents().only("name", "max_parallel_tasks", "paused")
    chosen = list(agents if name is None else agents.filter(name=name))
    load, now = load_of(chosen), database_now()
    since = backlog.waiting_since([agent.pk for agent in chosen])
    rows = [
        Row(name=agent.name, meter=load.meters[agent.name], oldest_wait_seconds=_seconds(since.get(agent.pk), now))
        for agent in sorted(chosen, key=lambda agent: agent.name)
        if agent.name in load.meters
    ]
    return Reading(at=now, rows=rows, known=load.known)


def table(reading: Reading, *, most: int | None = None) -> Table:
    """The agents as a table of at most that many rows, those that want looking at first where not all fit."""
    drawn = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left", caption=reading.summary)
    for heading, justify in (("agent", "left"), ("slots", "left"), ("used", "right"), ("waiting", "right"), ("oldest wait", "right")):
        drawn.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # its own Literal
    drawn.add_column("health", no_wrap=True)
    rows = reading.rows
    if most is not None and len(rows) > most:
        rows = sorted(rows, key=lambda row: (_URGENCY.index(row.health), row.name))[:most]
        drawn.caption = f"… and {len(reading.rows) - most} more · {reading.summary}"
    for row in rows:
        drawn.add_row(*_cells(row))
    return drawn


def _cells(row: Row) -> list[Text]:
    meter, style = row.meter, _STYLES[level_of(row.meter)]
    used = "unknown" if meter.active is None else f"{meter.active}/{meter.max}"
    waited = "" if row.oldest_wait_seconds is None else _age(row.oldest_wait_seconds)
    word = row.health.value.replace("_", " ")
    return [Text(row.name), Text(_bar(meter), style), Text(used, style), Text(str(meter.queued or "")), Text(waited), Text(word)]


def _bar(meter: Meter) -> str:
    """A cell a slot; in proportion where there are many."""
    cells = min(meter.max, MOST_CELLS)
    if meter.active is None:
        return "?" * cells
    filled = min(meter.active, meter.max)
    if cells < meter.max and 0 < filled < meter.max:
        filled = min(cells - 1, max(1, round(filled * cells / meter.max)))
    return "■" * min(filled, cells) + "□" * (cells - min(filled, cells))


def _seconds(since: datetime | None, now: datetime) -> int | None:
    return None if since is None else max(0, int((now - since).total_seconds()))


def _age(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
