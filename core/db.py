"""Handing database connections back."""

from django.db import connection


def hand_back() -> None:
    """Give this thread's connection back to the pool before a long wait. SQLite has none to give back: a file is not scarce."""
    if connection.vendor != "sqlite" and not connection.in_atomic_block:
        connection.close()


def storable(text: str | None) -> str | None:
    """The text as every database can hold it: without NUL characters and lone surrogates."""
    return None if text is None else text.replace("\x00", "").encode("utf-8", "replace").decode()
