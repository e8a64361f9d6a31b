"""What has happened to slots and lines."""

import uuid
from dataclasses import dataclass

from core.events import Event


@dataclass(frozen=True, kw_only=True)
class SlotAcquired(Event):
    """An execution holds a slot."""

    agent: str
    execution_id: uuid.UUID
    slot_number: int


@dataclass(frozen=True, kw_only=True)
class SlotReleased(Event):
    """An execution's slot is free again."""

    agent: str
    execution_id: uuid.UUID


@dataclass(frozen=True, kw_only=True)
class LimitChanged(Event):
    """An agent's limit, or the ceiling (agent ""), is another one."""

    agent: str
    limit: int
