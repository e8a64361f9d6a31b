"""`manage.py create_key`: make an API key and show it, this once."""

import argparse
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from core.errors import TrinityError
from fleet import selectors, services
from fleet.models import Agent, KeyScope


class Command(BaseCommand):
    """Make an API key; the key alone is the last line of the output."""

    help = "Make an API key; the key alone is the last line of the output."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Whose key, and what it speaks for."""
        parser.add_argument("--user", required=True, help="its owner")
        parser.add_argument("--scope", required=True, choices=KeyScope.values, help="what it speaks for")
        parser.add_argument("--agent", help="the agent of a key of scope agent")
        parser.add_argument("--name", default="command line", help="what to call it")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Make it."""
        owner = User.objects.filter(username=options["user"]).first()
        if owner is None:
            raise CommandError(f"No user '{options['user']}'")
        try:
            made = services.create_key(owner=owner, scope=options["scope"], name=options["name"], agent=_agent(options["agent"]))
        except TrinityError as error:
            raise CommandError(error.detail) from error
        self.stderr.write(f"A key of scope {made.row.scope} for {owner.get_username()}; it is shown only now:")
        self.stdout.write(made.key)


def _agent(name: str | None) -> Agent | None:
    if name is None:
        return None
    agent = selectors.living_agents().filter(name=name).first()
    if agent is None:
        raise CommandError(f"No agent '{name}'")
    return agent
