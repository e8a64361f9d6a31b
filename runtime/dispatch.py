"""Where work is started, and nowhere else: an admission becomes a Celery message, or the caller's next run.

A message is a hint. When it can't be published the row stays granted, and the sweep dispatches it again; a publish never
hangs and never fails a request that was accepted.
"""

import time
from collections.abc import Iterable

import structlog
from celery import current_app
from django.db import Error
from kombu.exceptions import OperationalError

from backlog import services as backlog
from capacity.leases import Admission, Lease

log = structlog.get_logger(__name__)

RUN_EXECUTION = "runtime.run_execution"
TERMINATE_LOST = "runtime.terminate_lost"
END_RELEASED = "runtime.end_released"
#: After a failed publish nothing is published for this long: a dead broker costs each request its time-out otherwise.
BROKER_REST_SECONDS = 5.0


class _Broker:
    """Whether publishing is worth a try."""

    def __init__(self) -> None:
        self._rests_until = 0.0

    def rests(self) -> bool:
        """Whether the last publish failed a moment ago."""
        return time.monotonic() < self._rests_until

    def failed(self) -> None:
        """Begin a rest."""
        self._rests_until = time.monotonic() + BROKER_REST_SECONDS

    def recovered(self) -> None:
        """End the rest."""
        self._rests_until = 0.0


broker = _Broker()


def start(admissions: Iterable[Admission], *, here: bool = False) -> Admission | None:
    """Publish the admissions. With `here` the first is not published but returned: the caller's own thread runs it."""
    waiting = list(admissions)
    first = waiting.pop(0) if here and waiting else None
    unpublished = [admission for admission in waiting if not _publish(RUN_EXECUTION, admission.lease)]
    if unpublished:
        _note_undispatched(unpublished)
    return first


def _note_undispatched(admissions: list[Admission]) -> None:
    """Let the next sweep publish them; without the note it does so when they seem not to have been heard of."""
    try:
        backlog.note_undispatched(execution_ids=[admission.execution_id for admission in admissions])
    except Error as error:
        log.warning("execution.not_noted", error=str(error))


def terminate(lease: Lease) -> bool:
    """Publish that a lost run's agent is to be asked to end it; whether it was published."""
    return _publish(TERMINATE_LOST, lease)


def end_released(lease: Lease) -> bool:
    """Publish that the agent of a run whose slot was released by force is to be asked to end it; whether it was published."""
    return _publish(END_RELEASED, lease)


def _publish(task: str, lease: Lease) -> bool:
    if broker.rests():
        return False
    try:
        current_app.send_task(task, args=[str(lease.execution_id), str(lease.token)])
    except (OperationalError, OSError) as error:
        broker.failed()
        log.warning("execution.not_published", task=task, execution_id=str(lease.execution_id), error=str(error))
        return False
    except Exception:
        # kombu publishes on a closed channel, by an AttributeError, where the connection breaks while it declares the queue.
        # Whatever it is, the request was accepted, and the sweep publishes its start.
        log.exception("execution.publish_broke", task=task, execution_id=str(lease.execution_id))
        return False
    return True
