"""`/livez` and `/readyz`: is this process alive, and can it do its work. Both without login."""

from collections.abc import Callable
from typing import Final

from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern
from django.views.decorators.http import require_safe

from .asgi import Answer
from .redis import RedisError, client
from .urls import both

#: Given by the event loop itself: a process whose threads all wait for a slow database is alive.
LIVE: Final = {"/livez": Answer.json(200, {"status": "ok"}, headers={"Cache-Control": "no-store"})}


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database, Redis and migrations are all in order, else 503; each one's state is in the body."""
    checks = {name: _outcome(check) for name, check in _CHECKS.items()}
    ready = all(outcome == "ok" for outcome in checks.values())
    body = {"status": "ok" if ready else "unavailable", "checks": checks}
    headers = {"Cache-Control": "no-store"} | ({} if ready else {"Retry-After": "5"})
    return JsonResponse(body, status=200 if ready else 503, headers=headers)


def _outcome(check: Callable[[], str]) -> str:
    try:
        return check()
    except (Error, RedisError):
        return "unreachable"


def _database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return "ok"


def _redis() -> str:
    client().ping()
    return "ok"


def _migrations() -> str:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return f"{len(missing)} not applied" if missing else "ok"


_CHECKS: Final = {"database": _database, "redis": _redis, "migrations": _migrations}

urlpatterns: list[URLPattern] = both("readyz", readyz, name="readyz")
