"""Starts a program that does not outlive its starter, however that one ends: `python tether.py STARTER_PID PROGRAM ARG…`.

On Linux the kernel does it: the process asks for SIGKILL at its parent's death and becomes the program. Elsewhere it
stays, watches whose child it is, and kills the program's group when that changes. Standard library only, and no import
of ours: it runs with `-I -S`, ten milliseconds before the program.

The kernel's promise hangs on the starting *thread*: start from one that lives as long as the process, the main one.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
WATCH_SECONDS = 0.5


def tethered(argv: list[str]) -> list[str]:
    """The command line that starts `argv` tied to this process."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), *argv]


def _become(starter: int, argv: list[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:  # it died before the kernel was asked
        sys.exit(1)
    os.execvp(argv[0], argv)  # noqa: S606 - no shell, and the command line is our own


def _watch(starter: int, argv: list[str]) -> int:
    child = subprocess.Popen(argv)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    while True:
        try:
            return child.wait(WATCH_SECONDS)
        except subprocess.TimeoutExpired:
            if os.getppid() != starter:
                child.kill()


def main() -> None:
    """Run the program named on the command line."""
    starter, argv = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        _become(starter, argv)
    sys.exit(_watch(starter, argv))


if __name__ == "__main__":
    main()
