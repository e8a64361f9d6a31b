"""`manage.py prepare`: what has to be there before anything can be served."""

from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from fleet import services
from fleet.models import KeyScope
from runtime.demo import fleet as demo


class Command(BaseCommand):
    """Migrates the database and makes a first owner; says what its reader must write down."""

    help = "Migrate the database and make the first owner, whose password and API key are shown this once. Repeatable."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whether with the demo."""
        parser.add_argument("--demo-port", type=int, help="also make the demo's agents, one of them on this port")

    def handle(self, *, demo_port: int | None, **options: Any) -> None:
        """Do what is not done yet."""
        call_command("migrate", verbosity=0, interactive=False)
        self._ensure_owner()
        person = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
        if demo_port is not None and person is not None:
            demo.ensure_agents(owner=person, server_url=f"http://127.0.0.1:{demo_port}")
            demo.ensure_key(owner=person)

    def _ensure_owner(self) -> None:
        password = services.ensure_owner()
        if password is None:
            return
        owner = User.objects.get(username="owner")
        key = services.create_key(owner=owner, scope=KeyScope.USER, name="first key").key
        self.stdout.write(f"Sign in as owner with the password {password}")
        self.stdout.write(f"API key of owner: {key}")
        self.stdout.write("Both are shown this once.")
