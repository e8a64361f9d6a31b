"""`manage.py slots`: the fleet in the terminal."""

import json
import os
import signal
import sys
import threading
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, close_old_connections
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from frontend import terminal

EVERY_SECONDS = 1
#: Of a table that isn't for a screen: no name is cut.
PLAIN_WIDTH = 160
#: Head and foot of the table, and the line for the cursor.
LINES_BESIDE = 4
STORE_DOWN = 3


class Command(BaseCommand):
    """Shows agents, their slots and their lines; exit code 3 while the slot store can't be asked, 1 where nothing can be shown."""

    help = "Show every agent's slots, line and health. Exit code 3: the slot store can't be asked, so who runs is unknown."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own type

    def add_arguments(self, parser: CommandParser) -> None:
        """Which agents, once or live, for people or programs."""
        parser.add_argument("--watch", action="store_true", help="go on until Ctrl-C, every second")
        parser.add_argument("--json", action="store_true", help="for programs: {at, known, agents: {name: …}}, a line each time")
        parser.add_argument("--agent", metavar="NAME", help="only this one")

    def handle(self, *args: Any, **options: Any) -> None:
        """Show it."""
        name: str | None = options["agent"]
        show = self._json if options["json"] else self._plain
        try:
            if options["watch"] and sys.stdout.isatty() and not options["json"]:
                _live(name)
            if options["watch"]:
                self._repeat(name, show)
            known = show(_read(name))
        except BrokenPipeError:
            # Whoever read it has seen enough; nothing is left to be flushed to them at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        except KeyboardInterrupt:
            return
        if not known:
            raise SystemExit(STORE_DOWN)

    def _json(self, reading: terminal.Reading) -> bool:
        self.stdout.write(json.dumps(reading.as_dict()))
        self.stdout.flush()
        return reading.known

    def _plain(self, reading: terminal.Reading) -> bool:
        console = Console(file=sys.stdout) if sys.stdout.isatty() else Console(file=sys.stdout, width=PLAIN_WIDTH)
        console.print(terminal.table(reading))
        sys.stdout.flush()
        return reading.known

    def _repeat(self, name: str | None, show: Any) -> NoReturn:
        while True:
            try:
                show(_read(name))
            except CommandError as error:
                self.stderr.write(str(error))
            _pause()


def _read(name: str | None) -> terminal.Reading:
    try:
        reading = terminal.read(name=name)
    except DatabaseError as error:
        raise CommandError(f"The database can't be asked: {error}") from error
    if name is not None and not reading.rows:
        raise CommandError(f"No agent is named {name}")
    return reading


def _live(name: str | None) -> NoReturn:
    # Ended from outside, it still gives the cursor back.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    console = Console(file=sys.stdout)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_now(name, console), refresh=True)
            _pause()


def _now(name: str | None, console: Console) -> RenderableType:
    try:
        return terminal.table(_read(name), most=max(1, console.height - LINES_BESIDE))
    except CommandError as error:
        return Text(str(error), "red")


def _pause() -> None:
    # A database that was away is asked on a new connection.
    close_old_connections()
    threading.Event().wait(EVERY_SECONDS)
