"""The app."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """Fleet."""

    name = "fleet"
