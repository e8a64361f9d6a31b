"""What has happened to limits. Changes of slots and lines are told by the scripts' own hints."""

from dataclasses import dataclass

from core.events import Event


@dataclass(frozen=True, kw_only=True)
class LimitChanged(Event):
    """An agent's limit, or the ceiling (agent ""), is another one."""

    agent: str
    limit: int
