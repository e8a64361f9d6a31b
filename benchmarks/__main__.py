"""`python -m benchmarks [NAME…]`: measure, show, and write RESULTS.md."""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from . import marks, report
from .figures import Better, Figure
from .ground import Process, ground, python
from .report import Line

#: Name → whether the database has a part in it.
SUITE = {
    "acquire_release": False,
    "utilisation": True,
    "handover": True,
    "throughput": True,
    "submit": True,
    "held_calls": True,
    "slots_read": True,
    "timeline_pan": False,
    "sockets": False,
}


def main() -> None:
    """Each benchmark on each database; all of them where none is named."""
    asked = _asked()
    # Ended from outside, it still takes its grounds away.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    began, load = time.monotonic(), os.getloadavg()[0]
    lines = []
    for name in asked.names or SUITE:
        for database, url in _databases(asked.postgres, wanted=SUITE[name]):
            print(f"{name} on {database} …", flush=True)
            figures = _measured(name, postgres=url, options=_options(asked))
            lines += [Line(benchmark=name, database=database if SUITE[name] else "-", figure=figure) for figure in figures]
    report.show(lines)
    if not asked.names or asked.write:
        report.write(lines, seconds=time.monotonic() - began, load=load)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Trinity beside floors and peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *SUITE], help=f"of {', '.join(SUITE)}; all if none is given")
    parser.add_argument("--full", action="store_true", help="the long forms: 1,000,000 attempts, 200 of the longer tasks")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of each comparison (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md also when only some are named")
    parser.add_argument(
        "--postgres",
        default=os.environ.get("TEST_DATABASE_URL", ""),
        metavar="URL",
        help="also measure on a fresh database of this PostgreSQL server (default: TEST_DATABASE_URL)",
    )
    return parser.parse_args()


def _options(asked: argparse.Namespace) -> list[str]:
    return ["--rounds", str(asked.rounds), *(["--full"] if asked.full else [])]


def _databases(postgres: str, *, wanted: bool) -> list[tuple[str, str]]:
    return [("SQLite", ""), *([("PostgreSQL", postgres)] if postgres and wanted else [])]


def _measured(name: str, *, postgres: str, options: list[str]) -> list[Figure]:
    """In a process of its own: each has its own settings, threads and connections."""
    with ground(postgres=postgres) as env, tempfile.TemporaryDirectory(prefix="trinity-bench-") as made:
        directory = Path(made)
        out = directory / "figures.json"
        own = {"DJANGO_SETTINGS_MODULE": "trinity.settings", marks.VARIABLE: str(directory / "marks")}
        session = Process(name, python("-m", "benchmarks.session", name, str(out), *options), env=env | own, directory=directory)
        try:
            if session.wait():
                session.require()
            return [Figure(**(read | {"better": Better(read["better"])})) for read in json.loads(out.read_text())]
        finally:
            session.end()


if __name__ == "__main__":
    main()
