"""A command agent with a ledger of its own: `python program.py DIRECTORY`, the task on stdin. Standard library only.

Each task writes `begin ID COUNT` and `end ID` to `DIRECTORY/ledger`, where COUNT is how many of the agent's tasks live right
then, itself included: each holds a lock on a file of its own, which the kernel takes away when it dies by whatever means.
Words of the message that it obeys: `sleep=SECONDS` works that long, `hang` works until `DIRECTORY/gate` exists.
"""

import contextlib
import fcntl
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def main(directory: Path) -> None:
    """Do the task."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    execution_id, message = os.environ["TRINITY_EXECUTION_ID"], sys.stdin.read()
    place = directory / "live" / f"{execution_id}.{os.getpid()}"
    with _alone(directory):
        mine = place.open("w")
        fcntl.flock(mine, fcntl.LOCK_EX)
        _write(directory, f"begin {execution_id} {_living(directory)}")
    _work(message, directory / "gate")
    with _alone(directory):
        _write(directory, f"end {execution_id}")
        place.unlink()
        mine.close()
    sys.stdout.write(f"done: {message}")


def _work(message: str, gate: Path) -> None:
    if found := re.search(r"\bsleep=(\d+(?:\.\d+)?)", message):
        time.sleep(float(found[1]))
    while "hang" in message.split() and not gate.exists():
        time.sleep(0.05)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(directory: Path, line: str) -> None:
    with (directory / "ledger").open("a") as ledger:
        ledger.write(line + "\n")


def _living(directory: Path) -> int:
    return sum(_lives(path) for path in (directory / "live").iterdir())


def _lives(path: Path) -> bool:
    with path.open() as file:
        if _locked(file):
            return True
    path.unlink()
    return False


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
