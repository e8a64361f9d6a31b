"""What the broker is asked beside publishing: how many messages nobody has taken yet."""

import structlog
from celery import current_app
from kombu.exceptions import OperationalError

from .. import dispatch

log = structlog.get_logger(__name__)


def waiting_messages() -> int | None:
    """How many messages wait for a worker with a free thread; None while the broker can't be asked.

    Workers reserve nothing: whoever has a free thread takes a message at once. Never hangs; a broker that is away rests as
    after a failed publish.
    """
    if dispatch.broker.rests():
        return None
    queue = current_app.amqp.queues[current_app.conf.task_default_queue]
    with current_app.connection_for_write() as connection:
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=1)
            # As workers declare it, not passively: with Redis that looks for the queue under a name without its prefix.
            declared = connection.channel().queue_declare(queue=queue.name, durable=queue.durable, auto_delete=False)
        except (OperationalError, OSError, *connection.connection_errors, *connection.channel_errors) as error:
            dispatch.broker.failed()
            log.warning("broker.not_asked", error=str(error))
            return None
    return int(declared.message_count)
