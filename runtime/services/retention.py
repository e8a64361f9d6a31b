"""What is old enough to be deleted: executions and firings that have ended, and idempotency keys that no longer count."""

import time
from datetime import timedelta

import structlog

from backlog import bulk
from core.conf import conf
from fleet import reach

from . import firing

log = structlog.get_logger(__name__)

#: Rows a transaction.
BATCH = 100
#: A pass leaves the rest to the next one: the sweep waits for it.
PASS_SECONDS = 2.0


def forget_old() -> bool:
    """Delete for a moment; whether all that is old is gone. Zero `TRINITY_RETENTION_DAYS` keeps executions for ever."""
    reach.forget_former()
    ends_at = time.monotonic() + PASS_SECONDS
    executions = keys = 0
    more = True
    while more and time.monotonic() < ends_at:
        gone, more = _forget_executions()
        forgotten = bulk.forget_keys(older_than=_key_age(), most=BATCH)
        executions, keys, more = executions + gone, keys + forgotten, more or forgotten == BATCH
    if executions or keys:
        log.info("retention.forgot", executions=executions, idempotency_keys=keys, done=not more)
    return _forget_firings() and not more


def _forget_executions() -> tuple[int, bool]:
    if not conf.retention_days:
        return 0, False
    # With an execution goes its key: one that still counts must keep a repeated request from being run again.
    return bulk.forget_finished(older_than=max(timedelta(days=conf.retention_days), _key_age()), most=BATCH)


def _forget_firings() -> bool:
    """Whether all old ones are gone; they are few, and small."""
    if not conf.retention_days:
        return True
    return firing.forget_firings(older_than=timedelta(days=conf.retention_days), most=10 * BATCH) < 10 * BATCH


def _key_age() -> timedelta:
    return timedelta(seconds=conf.idempotency_seconds)
