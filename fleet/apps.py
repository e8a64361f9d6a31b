"""The app, and the one row it can't be without."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from core.conf import conf

#: As in `models`, which can't be imported before the apps are loaded.
MAX_CEILING = 32


class FleetConfig(AppConfig):
    """Fleet."""

    name = "fleet"

    def ready(self) -> None:
        """Have the row of fleet-wide settings made after every migrate (and flush), where it is missing."""
        post_migrate.connect(make_fleet_settings, sender=self)


def make_fleet_settings(sender: FleetConfig, using: str, **_kwargs: Any) -> None:
    """Make the row with the first values that the environment names."""
    sender.get_model("FleetSettings").objects.using(using).get_or_create(
        id=1,
        defaults={
            "max_parallel_tasks_ceiling": min(MAX_CEILING, conf.max_parallel_tasks_ceiling),
            "max_concurrent_tasks": conf.max_concurrent_tasks or None,
        },
    )
