"""Runs a program of the project that can be made to kill itself at an exact point.

`python -m tests.chaos.crashing DIRECTORY POINT… -- PROGRAM`, PROGRAM being `-m MODULE ARGUMENT…` or `FILE ARGUMENT…`. A POINT is
`MODULE:NAME:before` or `…:after`, NAME a function of the module or `Class.method`. The process that reaches a point which is
written in `DIRECTORY/worker` (Celery's processes) or `DIRECTORY/web` (all others) takes the file away and dies by SIGKILL:
once for each time that the file is written. Nothing of it is in the product.
"""

import functools
import importlib.util
import os
import runpy
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class Patching(MetaPathFinder):
    """Wraps functions of modules when those are imported, before anybody else can get hold of them."""

    def __init__(self, armed: Path, points: Sequence[str]) -> None:
        """`armed`: the file that names the point to die at."""
        self._armed = armed
        self._names: dict[str, set[str]] = defaultdict(set)
        for point in points:
            module, name, _ = point.split(":")
            self._names[module].add(name)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module as the other finders know it, to be patched once it is executed."""
        names = self._names.pop(fullname, None)
        spec = importlib.util.find_spec(fullname) if names else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            for name in names or ():
                self._patch(module, name)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec

    def _patch(self, module: ModuleType, name: str) -> None:
        *holder, last = name.split(".")
        owner = functools.reduce(getattr, holder, module)
        setattr(owner, last, self._mortal(getattr(owner, last), f"{module.__name__}:{name}"))

    def _mortal(self, function: Callable[..., Any], point: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            self._die_if_armed(f"{point}:before")
            answer = function(*arguments, **named)
            self._die_if_armed(f"{point}:after")
            return answer

        return call

    def _die_if_armed(self, point: str) -> None:
        if self._armed.exists() and self._armed.read_text() == point:
            self._armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Be the program."""
    end = sys.argv.index("--")
    directory, points, program = Path(sys.argv[1]), sys.argv[2:end], sys.argv[end + 1 :]
    sys.meta_path.insert(0, Patching(directory / ("worker" if "celery" in program else "web"), points))
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
