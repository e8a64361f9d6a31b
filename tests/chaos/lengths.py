"""The lengths in which the suite's schedules are run: short ones always, long ones where `TEST_LONG` or `CHAOS_MINUTES` asks."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.ground import HOW_TO_GET_FAKETIME, faketime_library
from tests.chaos.plan import Plan
from tests.chaos.run import run

SHORT_SECONDS = 24.0
#: What a run needs beside its schedule: to start, to come to rest, to end.
AROUND_SECONDS = 400.0


def plans(*, postgres: bool, seed: int) -> list[Any]:
    """Those to be run on this database; `CHAOS_SEED` changes the seed of all."""
    seed = int(os.environ.get("CHAOS_SEED") or seed)
    short = Plan(seed=seed, seconds=SHORT_SECONDS, postgres=postgres)
    return [
        _named(short, "short"),
        *(_named(_long(minutes, seed=seed, postgres=postgres), f"{minutes:g} minutes") for minutes in _minutes()),
    ]


def _minutes() -> list[float]:
    asked = os.environ.get("CHAOS_MINUTES") or ("10,30" if os.environ.get("TEST_LONG") else "")
    return [float(part) for part in asked.split(",") if part]


def _long(minutes: float, *, seed: int, postgres: bool) -> Plan:
    return Plan(
        seed=seed, seconds=minutes * 60, postgres=postgres, agents=20, slots=60, workers=3, rate=10.0, clients=10, gap=4.0, rounds=3
    )  # fmt: skip


def _named(plan: Plan, name: str) -> Any:
    return pytest.param(plan, id=name, marks=pytest.mark.timeout(plan.whole_seconds + AROUND_SECONDS))


def carry_out(plan: Plan) -> None:
    """Run it; logs and ledgers are kept where an invariant broke, figures in the directory that `CHAOS_FIGURES` names."""
    if os.environ.get("CI") == "true":
        assert faketime_library() is not None, HOW_TO_GET_FAKETIME
    directory = Path(tempfile.mkdtemp(prefix="trinity-chaos-"))
    report = run(plan, directory)
    if figures := os.environ.get("CHAOS_FIGURES"):
        report.write(Path(figures))
    shutil.rmtree(directory)  # kept where an invariant broke
