"""Filling an emptied gate from the rows."""

import uuid
from datetime import datetime

import structlog

from backlog import selectors as rows
from backlog import services as backlog
from core.conf import conf
from fleet.models import Agent

from . import repairs, slots
from .held import held_rows
from .keeping import kept

log = structlog.get_logger(__name__)

#: Rows written to the gate per call.
CHUNK = 500


def refill() -> bool:
    """Whether this call has filled the emptied gate; see `CapacityManager.refill`."""
    nonce, began_at = uuid.uuid4(), rows.database_now()
    if not slots.rebuild_begin(nonce=nonce):
        return False
    with kept(nonce):
        return _refilled(nonce, began_at=began_at)


def _refilled(nonce: uuid.UUID, *, began_at: datetime) -> bool:
    # Not what was granted since: a rebuilder that stood still here finds the gate of its successor open.
    requeued = backlog.undo_all_claims(granted_before=began_at)
    held = list(held_rows())
    for start in range(0, len(held), CHUNK):
        if not slots.rebuild_write(nonce=nonce, holders=held[start : start + CHUNK], lease_seconds=conf.lease_seconds):
            return False
    if not slots.rebuild_open(nonce=nonce):
        return False
    log.warning("slots.rebuilt", holders=len(held), requeued=requeued)
    repairs.count("slots_rebuilt")
    if requeued:
        repairs.count("put_back_in_line", by=requeued)
    slots.step_version(list(Agent.objects.filter(deleted_at=None).values_list("name", flat=True)))
    return True
