"""The admin: one module a model; all of them call the services that the API calls."""

from . import agents, fleet, keys, schedules, users

__all__ = ["agents", "fleet", "keys", "schedules", "users"]
