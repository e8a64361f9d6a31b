"""Whether the database answers, is of a kind that works, and has every migration."""

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import load_backend

from .clocks import compared
from .findings import ANSWER_SECONDS, Finding, fail, ok, one_line, warn

MIGRATE = "manage.py migrate"


def check_database(described: dict[str, Any] | None = None) -> Iterator[Finding]:
    """The database that is described, else the settings' own, its clock, its migrations; on a connection of its own."""
    described = described or settings.DATABASES["default"]
    if _is_missing(described):
        yield fail("database", f"There is no {described['NAME']} yet", MIGRATE)
        return
    connection = _connection(described)
    try:
        yield _server(connection)
        if connection.vendor == "postgresql":
            yield _clock(connection)
        yield _migrations(connection)
    except (Error, OSError) as error:
        yield fail("database", f"Out of reach: {one_line(error)}", "Start the database, or set DATABASE_URL to where it is")
    finally:
        connection.close()


def _is_missing(described: dict[str, Any]) -> bool:
    """Whether connecting would make an empty file."""
    return described["ENGINE"].endswith("sqlite3") and not Path(described["NAME"]).exists()


def lose_patience() -> None:
    """Give this process's connections no more patience than the checks': before the first of them is made."""
    connections.databases["default"] = impatient(connections.databases["default"])


def impatient(described: dict[str, Any]) -> dict[str, Any]:
    """The database as it is described, but without a pool, and with the patience of a check."""
    own = copy.deepcopy(described)
    if "postgresql" in own["ENGINE"]:
        own["OPTIONS"].pop("pool", None)
        own["OPTIONS"] |= {"connect_timeout": int(ANSWER_SECONDS), "options": f"-c statement_timeout={int(ANSWER_SECONDS * 1000)}"}
    else:
        own["OPTIONS"] = own.get("OPTIONS", {}) | {"timeout": ANSWER_SECONDS}
    return own


def _connection(described: dict[str, Any]) -> BaseDatabaseWrapper:
    own = impatient(described)
    wrapper: BaseDatabaseWrapper = load_backend(own["ENGINE"]).DatabaseWrapper(own, "default")
    # The wrapper is used, and closed, in the thread that checks; nobody else knows it.
    wrapper.inc_thread_sharing()
    return wrapper


def _server(connection: BaseDatabaseWrapper) -> Finding:
    connection.ensure_connection()
    version = ".".join(map(str, connection.get_database_version()))
    seen = f"{connection.display_name} {version}"
    lowest = connection.features.minimum_database_version
    if lowest and connection.get_database_version() < lowest:
        return fail("database", seen, f"Django needs {connection.display_name} {'.'.join(map(str, lowest))} or newer")
    if connection.vendor != "sqlite":
        return ok("database", seen)
    mode = _value(connection, "PRAGMA journal_mode")
    seen = f"{seen}, {connection.settings_dict['NAME']}, journal mode {mode}"
    if mode != "wal":
        return warn("database", seen, "Move the data directory to a local disk: without WAL readers wait for every writer")
    return ok("database", seen)


def _clock(connection: BaseDatabaseWrapper) -> Finding:
    before = time.time()
    theirs = float(_value(connection, "SELECT EXTRACT(EPOCH FROM clock_timestamp())"))
    return compared("database clock", theirs=theirs, before=before, after=time.time())


def _migrations(connection: BaseDatabaseWrapper) -> Finding:
    executor = MigrationExecutor(connection)
    missing = [step for step, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    if not missing:
        return ok("migrations", "All applied")
    apps = ", ".join(sorted({step.app_label for step in missing}))
    return fail("migrations", f"{len(missing)} not applied, of {apps}", MIGRATE)


def _value(connection: BaseDatabaseWrapper, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]
