"""When work began and ended, written by whichever process did it: one line a mark, appended to one file.

Times are the machine's monotonic clock, which all its processes share.
"""

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VARIABLE = "BENCH_MARKS"
now = time.monotonic


@dataclass(frozen=True)
class Mark:
    """One piece of work."""

    label: str
    began: float
    ended: float


def write(label: str, began: float, ended: float) -> None:
    """Add one; a line this short is written whole."""
    os.write(_file(), f"{label} {began:.7f} {ended:.7f}\n".encode())


@cache
def _file() -> int:
    return os.open(path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def path() -> Path:
    """The file, named by the environment."""
    return Path(os.environ[VARIABLE])


def of(label: str) -> list[Mark]:
    """The marks with this label, by their beginning."""
    if not path().exists():
        return []
    lines = (line.split() for line in path().read_text().splitlines())
    return sorted((Mark(words[0], float(words[1]), float(words[2])) for words in lines if words[0] == label), key=lambda mark: mark.began)
