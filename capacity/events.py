"""What has happened to limits and pauses. Changes of slots and lines are told by the scripts' own hints."""

from dataclasses import dataclass

from core.events import Event


@dataclass(frozen=True, kw_only=True)
class LimitChanged(Event):
    """An agent's limit, or the ceiling (agent ""), is another one."""

    agent: str
    limit: int


@dataclass(frozen=True, kw_only=True)
class CapChanged(Event):
    """The fleet's cap on held slots is another one; None: there is none."""

    cap: int | None


@dataclass(frozen=True, kw_only=True)
class PauseChanged(Event):
    """An agent, or the fleet (agent ""), is paused or goes on."""

    agent: str
    paused: bool
