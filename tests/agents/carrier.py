"""A worker process in miniature: starts `count` commands, says "started", and waits for a line on stdin.

`python -m tests.agents.carrier MARK COUNT DEADLINE_SECONDS PROGRAM [ARGUMENT…]`; a deadline of 0 is none. At a line it
says which commands have ended, and by what, and leaves.
"""

import os
import sys
import time

from runtime.supervisor import client


def main(mark: str, count: int, seconds: float, argv: list[str]) -> None:
    """Carry the commands."""
    name, _, value = mark.partition("=")
    deadline = time.monotonic() + seconds if seconds else float("inf")
    env = {"PATH": os.environ["PATH"], name: value}
    commands = [client.start(argv=argv, cwd="/", env=env, mark=mark, deadline=deadline) for _ in range(count)]
    _say("started")
    sys.stdin.readline()
    if seconds:
        # A process that was frozen hears only now of what was reported meanwhile.
        for command in commands:
            command.wait(5)
    _say([command.ended.by if command.ended else None for command in commands])


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
