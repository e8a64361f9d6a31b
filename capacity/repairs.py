"""What repair keeps in the store between its passes. Losing it is harmless: it delays, it never hurries.

How often what was repaired, by all processes together; and since when a fenced run is told to end, so that its agent is
asked with growing pauses, whichever process makes the pass.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from core.redis import RedisError, client

from . import keys, slots
from .errors import SlotsUnavailable

log = structlog.get_logger(__name__)

#: Pauses between two asks of one run double up to this.
LONGEST_PAUSE_SECONDS = 60
#: Longer than any pause, so that they go on growing; every pass renews it.
ENDING_EXPIRY_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A fenced run that is told to end. `due`: its agent is to be asked now, by whoever got this answer."""

    told_seconds: float
    due: bool


def endings(tokens: Sequence[uuid.UUID]) -> list[Ending]:
    """Note each as told to end, in one round trip; raises `SlotsUnavailable`."""
    if not tokens:
        return []
    arguments = [LONGEST_PAUSE_SECONDS, ENDING_EXPIRY_SECONDS]
    try:
        answers = slots.SCRIPTS["ending"].each([([keys.ending(token)], arguments) for token in tokens])
    except RedisError as error:
        raise SlotsUnavailable(retry_after=2) from error
    return [Ending(told_seconds=micros / 1_000_000, due=bool(due)) for micros, due in answers]


def count(kind: str, *, by: int = 1) -> None:
    """Add to the repairs of `kind`; never raises because the store is out of reach."""
    try:
        client().hincrby(keys.repairs(), kind, by)
    except RedisError as error:
        log.warning("repair.not_counted", kind=kind, error=str(error))


def counts() -> dict[str, int]:
    """`{kind: repairs}` since the store was last emptied; raises `SlotsUnavailable`."""
    try:
        found: dict[bytes, bytes] = client().hgetall(keys.repairs())  # type: ignore[assignment]
    except RedisError as error:
        raise SlotsUnavailable(retry_after=2) from error
    return {kind.decode(): int(times) for kind, times in sorted(found.items())}
