"""What a request asks for before it has a row, and what becomes of it in line."""

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .models import Trigger

if TYPE_CHECKING:
    from fleet.models import Agent


@dataclass(frozen=True, kw_only=True)
class IdempotencyRequest:
    """A caller's key and the SHA-256 of the body it came with."""

    caller: str
    key: str
    body_digest: str


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The whole request: everything that becomes a column of the row, whether it starts now or waits."""

    id: uuid.UUID
    message: str
    timeout_seconds: int
    triggered_by: Trigger = Trigger.MANUAL
    source_kind: str = "user"
    source_name: str = ""
    submitted_by_id: int | None = None
    submitted_key_id: int | None = None
    session_id: uuid.UUID | None = None
    model: str = ""
    system_prompt: str = ""
    allowed_tools: list[str] | None = None
    max_turns: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    priority: int = 5
    front: bool = False
    retry_of_id: uuid.UUID | None = None
    continues_id: uuid.UUID | None = None
    public_link_id: int | None = None
    #: It waits only while its caller is seen to (`presence`).
    attended: bool = False
    #: `session_id` is a session that is made with the row, as the submitter's.
    opens_session: bool = False
    idempotency: IdempotencyRequest | None = None


@dataclass(frozen=True, kw_only=True)
class Queued:
    """It waits in line; `position` is 1-based."""

    execution_id: uuid.UUID
    position: int


class Overflow(Protocol):
    """What to do with a draft that finds no slot."""

    def __call__(self, *, agent: "Agent", draft: Draft, full: Exception) -> Queued:
        """Put `draft` in line, or raise: `full` is the refusal that fits, ready to be raised."""
        ...
