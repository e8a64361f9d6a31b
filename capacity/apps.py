"""The app."""

from django.apps import AppConfig


class CapacityConfig(AppConfig):
    """Capacity."""

    name = "capacity"
