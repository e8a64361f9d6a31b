"""The app."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    """Core."""

    name = "core"
