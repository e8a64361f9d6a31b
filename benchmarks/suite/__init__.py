"""The benchmarks; each has `measure(options) -> list[Figure]` and runs in a process and on a ground of its own."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    """How much is measured."""

    full: bool
    rounds: int
