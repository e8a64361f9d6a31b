"""`manage.py housekeep`: one pass of sweep and reconciler."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from core.errors import TrinityError
from runtime import housekeeping


class Command(BaseCommand):
    """Runs one pass of housekeeping in this process."""

    help = "Run one pass of housekeeping: sweep, then reconcile."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it."""
        try:
            housekeeping.run_once()
        except TrinityError as error:
            raise CommandError(f"{error.detail}: is Trinity up?") from error
        self.stdout.write("done")
