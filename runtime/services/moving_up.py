"""Admissions after a change that is a fact in the database already: the slot store may be out of reach, the fact stays."""

from collections.abc import Callable

import structlog

from capacity.errors import SlotsUnavailable
from capacity.leases import Admission

from .. import dispatch

log = structlog.get_logger(__name__)


def start_opened(open_up: Callable[[], tuple[Admission, ...]]) -> bool:
    """Start what `open_up` admits; False where the store is out of reach: the sweep and repair do the rest then."""
    try:
        admissions = open_up()
    except SlotsUnavailable as error:
        log.warning("slots.left_to_sweep", error=str(error))
        return False
    dispatch.start(admissions)
    return True
