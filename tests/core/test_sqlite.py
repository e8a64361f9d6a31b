"""The SQLite backend: what it does while another process sits on the file."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

SECONDS = 2.0


@pytest.fixture
def database(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[ConnectionHandler]:
    """A file of its own, whose writers wait for two seconds."""
    options = {"transaction_mode": "IMMEDIATE", "timeout": SECONDS, "init_command": "PRAGMA journal_mode=WAL"}
    connections = ConnectionHandler({"default": {"ENGINE": "core.sqlite3", "NAME": str(tmp_path / "db"), "OPTIONS": options}})
    with django_db_blocker.unblock():
        connections["default"].cursor().execute("CREATE TABLE told (word TEXT)")
        yield connections
        connections.close_all()


@pytest.fixture
def sitter(database: ConnectionHandler) -> Iterator[sqlite3.Connection]:
    """Another process's connection."""
    with closing(sqlite3.connect(database["default"].settings_dict["NAME"], isolation_level=None, check_same_thread=False)) as other:
        yield other


def tell(database: ConnectionHandler, outcomes: list[Any]) -> None:
    """Write a row in a transaction; note the error it ended with, and after how long."""
    began, connection = time.monotonic(), database["default"]
    try:
        connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        connection.cursor().execute("INSERT INTO told VALUES ('word')")
        connection.commit()
        outcomes.append(("", time.monotonic() - began))
    except OperationalError as error:
        outcomes.append((str(error), time.monotonic() - began))
    finally:
        connection.close()


def test_no_writer_waits_longer_than_one_for_a_file_that_another_process_sits_on(
    database: ConnectionHandler, sitter: sqlite3.Connection
) -> None:
    sitter.execute("BEGIN IMMEDIATE")
    outcomes: list[tuple[str, float]] = []
    threads = [threading.Thread(target=tell, args=[database, outcomes]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [error for error, _ in outcomes] == ["database is locked"] * 5
    assert max(waited for _, waited in outcomes) < 2 * SECONDS


def test_writers_in_line_get_their_turn_when_the_file_is_let_go(database: ConnectionHandler, sitter: sqlite3.Connection) -> None:
    sitter.execute("BEGIN IMMEDIATE")
    letting_go = threading.Timer(SECONDS / 2, sitter.execute, args=["COMMIT"])
    letting_go.start()
    outcomes: list[tuple[str, float]] = []
    threads = [threading.Thread(target=tell, args=[database, outcomes]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in [*threads, letting_go]:
        thread.join()
    assert [error for error, _ in outcomes] == [""] * 5
    assert sitter.execute("SELECT count(*) FROM told").fetchone() == (5,)
