"""How often a Redis command is tried."""

from redis.backoff import NoBackoff
from redis.retry import Retry


def once() -> Retry:
    """One more try, at once: redis-py's own default waits for seconds on a dead server."""
    return Retry(NoBackoff(), 1)
