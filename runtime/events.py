"""What has happened to executions."""

import uuid
from dataclasses import dataclass

from core.events import Event


@dataclass(frozen=True, kw_only=True)
class ExecutionQueued(Event):
    """An execution waits in line."""

    execution_id: uuid.UUID
    agent: str


@dataclass(frozen=True, kw_only=True)
class ExecutionStarted(Event):
    """An execution's work begins."""

    execution_id: uuid.UUID
    agent: str


@dataclass(frozen=True, kw_only=True)
class ExecutionFinished(Event):
    """An execution has reached its terminal status."""

    execution_id: uuid.UUID
    agent: str
