"""The admin: one module a model; all of them call the services that the API calls."""

from . import agents, fleet, keys, public_links, schedules, users

__all__ = ["agents", "fleet", "keys", "public_links", "schedules", "users"]
