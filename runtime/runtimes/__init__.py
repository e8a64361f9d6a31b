"""How an agent is reached: one module a kind, each a `Runtime`."""

from .base import Runtime
from .command import CommandRuntime
from .http import HttpRuntime

_RUNTIMES: dict[str, Runtime] = {"command": CommandRuntime(), "http": HttpRuntime()}


def runtime_for(kind: str) -> Runtime:
    """The way to reach agents of `kind` ("command", "http"); `KeyError` for one that has none."""
    return _RUNTIMES[kind]
