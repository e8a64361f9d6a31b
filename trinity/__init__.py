"""Wiring: settings, ASGI, Celery, URLs. Holds no logic, is imported by nothing."""

from .celery import app as celery_app

__all__ = ["celery_app"]
