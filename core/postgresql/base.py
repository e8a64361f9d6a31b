"""The backend: no answer is waited for without a limit, and no connection that the server has closed is used.

libpq waits for an answer for ever. A server that is frozen, or behind a network that swallows everything, would hold up
every thread that asks it anything; here such a connection is given up, and the caller hears that the database is away.
"""

import select
from types import TracebackType
from typing import Any, Self

import psycopg
from django.db.backends.postgresql import base, schema

from core.conf import conf


class Connection(psycopg.Connection[Any]):
    """A connection on which each answer has to come within `TRINITY_DATABASE_TIMEOUT_SECONDS`, unless it is `patient`."""

    patient = False

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """The outcome of `gen`; a connection whose answer is overdue is closed, for nobody knows what state it is in."""
        if timeout is not None or self.patient:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, conf.database_timeout_seconds)
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {conf.database_timeout_seconds:g} s") from error

    @property
    def gone(self) -> bool:
        """Whether the server has closed the connection, or spoken out of turn: it says why it closes one."""
        idle = select.poll()
        idle.register(self.fileno(), select.POLLIN)
        return bool(idle.poll(0))


class DatabaseSchemaEditor(schema.DatabaseSchemaEditor):
    """Changes of the schema take the time they take."""

    def __enter__(self) -> Self:
        self.connection.ensure_connection()
        self._connection = self.connection.connection
        self._connection.patient = True
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._connection.patient = False


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes connections of the kind above from its pool, and none that broke while nobody used it."""

    SchemaEditorClass = DatabaseSchemaEditor

    def __init__(self, settings_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        if isinstance(pool := settings_dict["OPTIONS"].get("pool"), dict):
            pool.setdefault("connection_class", Connection)
        super().__init__(settings_dict, *args, **kwargs)

    def get_new_connection(self, conn_params: dict[str, Any]) -> psycopg.Connection[Any]:
        """A connection that is open as far as can be told without asking the server."""
        connection = super().get_new_connection(conn_params)
        while isinstance(connection, Connection) and connection.gone:
            # The pool replaces what comes back closed.
            connection.close()
            self.pool.putconn(connection)
            connection = super().get_new_connection(conn_params)
        return connection
