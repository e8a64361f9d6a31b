"""The PostgreSQL backend: what it does when the server says nothing, goes away and comes back."""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from tests import postgres
from tests.postgres import PostgresServer
from tests.proxy import Proxy

pytestmark = pytest.mark.flows


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of this module's own."""
    if postgres.programs() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(postgres.HOW_TO_GET_ONE)
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    """The way to the server."""
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def connection(proxy: Proxy, settings: Any, django_db_blocker: DjangoDbBlocker) -> Iterator[Any]:
    """A connection of Django's through the proxy, from a pool as in production, whose answers have two seconds."""
    settings.TRINITY_DATABASE_TIMEOUT_SECONDS = 2.0
    options = {"pool": {"min_size": 1, "max_size": 2, "timeout": 5}, "connect_timeout": 2}
    database = {"ENGINE": "core.postgresql", "NAME": "postgres", "USER": "trinity", "HOST": "127.0.0.1", "PORT": proxy.port}
    # Pools go by their alias, and "default" is the tests' own.
    connection = ConnectionHandler({"default": {}, "elsewhere": database | {"OPTIONS": options}})["elsewhere"]
    with django_db_blocker.unblock():
        yield connection
        proxy.resume()
        connection.close()
        connection.close_pool()


def one(connection: Any, query: str = "SELECT 1") -> Any:
    """The one value of a query; the connection goes back to the pool."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0]
    finally:
        connection.close()


def test_a_server_that_says_nothing_is_waited_for_no_longer_than_the_limit(connection: Any, proxy: Proxy) -> None:
    assert one(connection) == 1
    proxy.hang()
    began = time.monotonic()
    with pytest.raises(OperationalError, match="no answer within 2 s"):
        one(connection)
    with pytest.raises(OperationalError):
        one(connection)
    assert time.monotonic() - began < 12
    proxy.resume()
    assert one(connection) == 1


def test_a_transaction_whose_server_falls_silent_is_given_up(connection: Any, proxy: Proxy) -> None:
    connection.set_autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    proxy.hang()
    with pytest.raises(OperationalError):
        connection.commit()
    connection.close()
    proxy.resume()
    assert one(connection) == 1


def test_connections_that_broke_in_the_pool_are_not_given_to_anybody(connection: Any, server: PostgresServer) -> None:
    assert one(connection) == 1
    other = connection.copy("elsewhere")
    other.inc_thread_sharing()
    held = threading.Thread(target=one, args=[other, "SELECT pg_sleep(0.2)"])
    held.start()
    assert one(connection) == 1
    held.join()
    server.stop()
    server.start()
    assert [one(connection) for _ in range(3)] == [1, 1, 1]


def test_changes_of_the_schema_take_the_time_they_take(connection: Any) -> None:
    with connection.schema_editor(atomic=False) as editor:
        editor.execute("SELECT pg_sleep(2.5)")
    connection.close()
    with pytest.raises(OperationalError):
        one(connection, "SELECT pg_sleep(2.5)")
