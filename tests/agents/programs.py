"""Command agents that misbehave, as argument lists, and a look at which of their processes live."""

import sys

import psutil

#: Writes what it was asked.
ECHO = ["cat"]
#: Sleeps longer than any test.
SLEEPER = ["sleep", "600"]
#: Hears neither SIGINT nor SIGTERM, and neither do its children.
DEAF = ["sh", "-c", "trap '' INT TERM; sleep 600 & sleep 600; sleep 600"]
#: Leaves a child in a session of its own, whose parent ends at once, and works on.
ESCAPEE = ["sh", "-c", "(setsid sh -c 'sleep 600 & sleep 600' &) ; echo away; sleep 600"]
#: Leaves such a child, and one in its own group, and ends with success.
DESERTER = ["sh", "-c", "(setsid sleep 600 >/dev/null 2>&1 &) ; sleep 600 & echo done"]


def python(code: str) -> list[str]:
    """A program of a few lines of Python."""
    return [sys.executable, "-c", code]


def living(mark: str) -> list[int]:
    """The processes with `mark` (`NAME=value`) in their environment."""
    name, _, value = mark.partition("=")
    return [process.pid for process in psutil.process_iter() if _has(process, name, value)]


def _has(process: psutil.Process, name: str, value: str) -> bool:
    try:
        return process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
