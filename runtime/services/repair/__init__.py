"""Repair: what crashed midway is put right, from the rows and the gate as they are now.

Fence the row, stop the work, then free the slot. Each step is conditional on the token (and the phase) that was seen, so
that any number of passes, at once and in any order, do no harm. `housekeeping` calls these. Each repair is an entry in the
execution's log, a log line and a count; each that frees a slot drains the line.

    lost         holders whose lease ended; fenced rows until their work is over
    comparing    rows without a slot, slots without a row
    dispatching  granted rows that no worker has started
    waiting      rows in line: too old, kept back by nobody, or without the caller they wait for
    journal      what was done, told
"""

from .comparing import compare
from .dispatching import dispatch_again
from .lost import repair_lost, settle_fenced, terminate_lost
from .waiting import cancel_forsaken, expire_waiting, repair_sessions

__all__ = [
    "cancel_forsaken", "compare", "dispatch_again", "expire_waiting", "repair_lost", "repair_sessions", "settle_fenced", "terminate_lost",
]  # fmt: skip
