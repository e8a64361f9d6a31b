"""`python -m tests.chaos --minutes 10 --agents 20 --slots 60 --seed 7 --database postgres --store redis --write DIRECTORY`."""

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from core.embedded_store import packaged_program


def main() -> int:
    """Run one schedule and tell what came of it; 1 where an invariant broke."""
    options = _options()
    if program := _store_program(options.store):
        os.environ["TEST_STORE_PROGRAM"] = program
    # It reads the environment when it is imported.
    from tests.chaos.plan import Plan  # noqa: PLC0415
    from tests.chaos.run import run  # noqa: PLC0415
    from tests.invariants import Violation  # noqa: PLC0415

    directory = Path(options.keep or tempfile.mkdtemp(prefix="trinity-chaos-"))
    plan = Plan(
        seed=options.seed, seconds=options.minutes * 60, agents=options.agents, slots=options.slots, workers=options.workers,
        postgres=options.database == "postgres", rate=options.rate, clients=options.clients, gap=options.gap, rounds=options.rounds,
    )  # fmt: skip
    try:
        report = run(plan, directory, say=_say)
    except (AssertionError, Violation) as error:
        _say(f"FAILED; logs are in {directory}\n{error}")
        return 1
    if options.write:
        report.write(Path(options.write))
    if not options.keep:
        shutil.rmtree(directory)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--slots", type=int, default=60)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--rate", type=float, default=10.0, help="tasks submitted a second")
    parser.add_argument("--clients", type=int, default=10, help="threads that submit, and as many again that wait for results")
    parser.add_argument("--gap", type=float, default=4.0, help="seconds between faults, on average")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of single faults afterwards, for undisturbed figures")
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--store", choices=["valkey", "redis"], default="valkey")
    parser.add_argument("--write", help="a directory for the figures, as JSON and as markdown")
    parser.add_argument("--keep", help="a directory for logs and ledgers that are kept")
    return parser.parse_args()


def _store_program(store: str) -> str | None:
    if store == "redis":
        program = shutil.which("redis-server")
        if program is None:
            sys.exit("No redis-server found: install the redis-server package")
        return program
    return packaged_program() or shutil.which("valkey-server")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
