"""Identifiers: UUIDv7 for rows (sorts by time of creation), UUIDv4 for tokens (tells nothing)."""

import uuid

import uuid_utils.compat


def new_id() -> uuid.UUID:
    """A UUIDv7, increasing within a process."""
    return uuid_utils.compat.uuid7()


def new_token() -> uuid.UUID:
    """A random UUIDv4."""
    return uuid.uuid4()
