"""The app."""

from django.apps import AppConfig


class BacklogConfig(AppConfig):
    """Backlog."""

    name = "backlog"
