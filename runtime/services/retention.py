"""What is old enough to be deleted: finished executions with their events, and idempotency keys that no longer count."""

import time
from datetime import timedelta

import structlog

from backlog import bulk
from core.conf import conf
from fleet import reach

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
    done = False
    while not done and time.monotonic() < ends_at:
        gone = _forget_executions()
        forgotten = bulk.forget_keys(older_than=timedelta(seconds=conf.idempotency_seconds), most=BATCH)
        executions, keys, done = executions + gone, keys + forgotten, gone < BATCH and forgotten < BATCH
    if executions or keys:
        log.info("retention.forgot", executions=executions, idempotency_keys=keys, done=done)
    return done


def _forget_executions() -> int:
    if not conf.retention_days:
        return 0
    return bulk.forget_finished(older_than=timedelta(days=conf.retention_days), most=BATCH)
