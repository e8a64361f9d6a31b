"""`manage.py serve`: one web process in the foreground."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from core.serve import serve


class Command(BaseCommand):
    """Serves HTTP and websockets until SIGTERM or Ctrl-C."""

    help = "Serve HTTP and websockets in this process until SIGTERM or Ctrl-C."
    #: `up` and `doctor` check; each web process starting again must not wait for it.
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own type

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to listen."""
        parser.add_argument(
            "--host",
            default="127.0.0.1",
            help="address to listen on (default: %(default)s)",
        )
        parser.add_argument(
            "--port",
            type=int,
            default=8000,
            help="port to listen on (default: %(default)s)",
        )

    def handle(self, *, host: str, port: int, **options: Any) -> None:
        """Run the server."""
        self.stdout.write(f"Serving http://{host}:{port}/")
        self.stdout.flush()
        serve(host=host, port=port)
