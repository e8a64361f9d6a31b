"""`python -m tests.model --schedules N [--seed S]`: many schedules of the full rules, on a server of their own.

By a socket file and `wire.Wire`, which takes a third of the time.
"""

import argparse
import subprocess
import sys
import time
from collections import Counter

from tests import environment, waiting


def main() -> int:
    """Print what was run and every violation; 1 if there was any."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--schedules", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    asked = parser.parse_args()
    with (environment.DATA_DIR / "valkey.log").open("wb") as log:
        server = subprocess.Popen(tethered([*store.argv(), "--unixsocket", str(socket)]), stdout=log, stderr=log)
        try:
            waiting.until(answers)
            return campaign(first=asked.seed, schedules=asked.schedules)
        finally:
            server.terminate()
            server.wait()


def answers() -> bool:
    """Whether the server is there."""
    try:
        return bool(client().ping())
    except RedisError:
        return False


def campaign(*, first: int, schedules: int) -> int:
    """Run the seeds from `first` on."""
    counts, found, began = Counts(), Counter(), time.monotonic()
    for seed in range(first, first + schedules):
        try:
            run_schedule(seed=seed, valkey=client()).count(counts)
        except Violation as violation:
            found[str(violation).split()[0]] += 1
            sys.stdout.write(f"{seed} {str(violation)[:400]}\n")
    seconds = time.monotonic() - began
    sys.stdout.write(f"seeds {first}..{first + schedules - 1}: {counts}, {seconds:.0f} s, violations: {dict(found) or 'none'}\n")
    return 1 if found else 0


if __name__ == "__main__":
    import django
    from django.conf import settings

    store, socket = environment.STORE, environment.DATA_DIR / "valkey.sock"
    assert store is not None, "TEST_REDIS_URL is for pytest"
    settings.CACHES["default"]["LOCATION"] = f"unix://:{store.password}@{socket}?protocol=2"
    settings.CACHES["default"]["OPTIONS"]["REDIS_CLIENT_CLASS"] = "tests.model.wire.Wire"
    django.setup()

    from core.redis import RedisError, client
    from core.tether import tethered
    from tests.invariants import Violation

    from .schedule import Counts, run_schedule

    sys.exit(main())
