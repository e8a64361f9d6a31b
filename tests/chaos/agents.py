"""The fleet of a chaos run: HTTP servers and programs, each with a ledger that it alone writes."""

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.agents.ledger import Ledger
from tests.agents.server import AgentServer
from tests.stack import Stack

PROGRAM = Path(__file__).with_name("program.py")


class Books(Protocol):
    """What an agent saw."""

    def begun(self) -> Counter[str]:
        """How often the work of each execution began."""
        ...

    def peak(self) -> int:
        """The most that ever went on at once."""
        ...

    def let_go(self) -> None:
        """End the tasks that hang."""
        ...


@dataclass
class HttpBooks:
    """The ledger of one agent of the server."""

    server: AgentServer
    ledger: Ledger

    def begun(self) -> Counter[str]:
        """See `Books`."""
        return Counter(self.ledger.started)

    def peak(self) -> int:
        """See `Books`."""
        return self.ledger.peak

    def let_go(self) -> None:
        """See `Books`."""
        for call in self.ledger.calls:
            call.over.set()


@dataclass
class CommandBooks:
    """The directory of one program."""

    directory: Path

    def begun(self) -> Counter[str]:
        """See `Books`."""
        return Counter(words[1] for words in self._lines() if words[0] == "begin")

    def peak(self) -> int:
        """See `Books`."""
        return max((int(words[2]) for words in self._lines() if words[0] == "begin"), default=0)

    def let_go(self) -> None:
        """See `Books`."""
        (self.directory / "gate").touch()

    def _lines(self) -> list[list[str]]:
        ledger = self.directory / "ledger"
        return [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []


@dataclass
class ChaosAgent:
    """An agent of the run. `limits`: every limit that it may have had; the first is the one that it goes back to."""

    name: str
    books: Books
    limits: list[int]
    depth: int
    steered: bool = False
    #: What may have been refused to everybody while it was paused.
    pauses: int = field(default=0)

    @property
    def limit(self) -> int:
        """Its limit when nobody steers."""
        return self.limits[0]


def make_fleet(stack: Stack, *, server: AgentServer, directory: Path, count: int, slots: int) -> list[ChaosAgent]:
    """`count` agents with `slots` slots together, every second one a command, every third one's limit changed now and then.

    Every fourth one has a line that is soon full.
    """
    return [
        _made(stack, server=server, directory=directory, number=number, limit=_share(slots, count, number), depth=60 if number % 4 else 4)
        for number in range(count)
    ]


def _share(slots: int, count: int, number: int) -> int:
    return max(1, slots // count + (number < slots % count))


def _made(stack: Stack, *, server: AgentServer, directory: Path, number: int, limit: int, depth: int) -> ChaosAgent:
    books, runtime = _command(directory / f"agent{number}") if number % 2 else _http(server, f"agent{number}")
    name = stack.make_agent(runtime=runtime, limit=limit, depth=depth, key=stack.superuser_key)
    return ChaosAgent(name=name, books=books, limits=[limit], depth=depth, steered=number % 3 == 2)


def _http(server: AgentServer, name: str) -> tuple[Books, dict[str, Any]]:
    ledger = server.at(name)
    return HttpBooks(server=server, ledger=ledger), {"kind": "http", "url": ledger.url}


def _command(directory: Path) -> tuple[Books, dict[str, Any]]:
    (directory / "live").mkdir(parents=True)
    argv = [sys.executable, "-I", "-S", str(PROGRAM), str(directory)]
    return CommandBooks(directory=directory), {"kind": "command", "argv": argv}
