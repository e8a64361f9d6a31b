"""What has happened, told to whoever listens.

An event is a frozen dataclass in its app's `events.py`, named in the past tense; `SlotReleased` is `slot.released` on the
wire. Publishing is a Redis PUBLISH: nothing is stored, nothing waits, and nothing may depend on its being heard.
"""

import json
import re
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

import structlog

from .redis import RedisError, client

log = structlog.get_logger(__name__)

CHANNEL = "trinity:events"


@dataclass(frozen=True)
class Event:
    """Something that happened. Subclasses are frozen, keyword-only dataclasses of plain values."""

    #: The name on the wire: the class's words, the last one after a dot.
    type: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        words = re.findall(r"[A-Z][a-z0-9]*", cls.__name__)
        cls.type = f"{'_'.join(words[:-1])}.{words[-1]}".lower()


def wire(event: Event) -> dict[str, Any]:
    """The event as JSON carries it: `type` and its fields; identifiers and times are text."""
    return {"type": event.type} | {field.name: _plain(getattr(event, field.name)) for field in fields(event)}


def publish(*events: Event) -> None:
    """Tell them, in this order, to every process that listens now. Never raises because Redis is out of reach.

    Call it after the commit of what it tells (`transaction.on_commit`, or after the `atomic` block): a listener looks at
    the database at once.
    """
    try:
        _send([json.dumps(wire(event)) for event in events])
    except RedisError as error:
        for event in events:
            log.warning("events.not_published", event_type=event.type, reason=str(error))


def _send(messages: list[str]) -> None:
    if len(messages) == 1:
        client().publish(CHANNEL, messages[0])
        return
    with client().pipeline(transaction=False) as pipe:
        for message in messages:
            pipe.publish(CHANNEL, message)
        pipe.execute()


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
