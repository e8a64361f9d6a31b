"""The app."""

from django.apps import AppConfig


class RuntimeConfig(AppConfig):
    """Runtime."""

    name = "runtime"
