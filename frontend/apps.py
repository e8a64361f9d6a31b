"""The app."""

from django.apps import AppConfig


class FrontendConfig(AppConfig):
    """Frontend."""

    name = "frontend"
