"""The admin: one module a model; all of them call the services that the API calls."""

from . import agents, audit, executions, fleet, keys, public_links, schedules, shares, users

__all__ = ["agents", "audit", "executions", "fleet", "keys", "public_links", "schedules", "shares", "users"]
