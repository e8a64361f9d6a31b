"""Holding on to a rebuild of the gate while the database takes its time."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from . import slots
from .errors import SlotsUnavailable

log = structlog.get_logger(__name__)

EVERY_SECONDS = slots.REBUILD_EXPIRY_MS / 5000
#: A rebuilder whose database hangs for longer makes way for another one, whose database may answer.
MOST_SECONDS = 60.0


@contextmanager
def kept(nonce: uuid.UUID) -> Iterator[None]:
    """Keep a rebuild's nonce from expiring while the block lasts.

    Else a database that needs longer for its part than a nonce lives would have one rebuilder after the other give up. A
    process that is killed or frozen stops keeping it: its successor waits no longer than before.
    """
    over = threading.Event()
    threading.Thread(target=_keep, args=[nonce, over], name="rebuild", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _keep(nonce: uuid.UUID, over: threading.Event) -> None:
    give_up_at = time.monotonic() + MOST_SECONDS
    while not over.wait(EVERY_SECONDS) and time.monotonic() < give_up_at:
        try:
            if not slots.rebuild_keep(nonce=nonce):
                return
        except SlotsUnavailable as error:
            log.warning("slots.rebuild_not_kept", error=str(error))
