"""The app, and the one row it can't be without."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from .first_values import fleet_values


class FleetConfig(AppConfig):
    """Fleet."""

    name = "fleet"

    def ready(self) -> None:
        """Have the row of fleet-wide settings made after every migrate (and flush), where it is missing."""
        post_migrate.connect(make_fleet_settings, sender=self)


def make_fleet_settings(sender: FleetConfig, using: str, **_kwargs: Any) -> None:
    """Make the row with the first values that the environment names."""
    settings: Any = sender.get_model("FleetSettings")
    settings.objects.using(using).get_or_create(id=1, defaults=fleet_values())
