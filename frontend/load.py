"""What the screens show of the slots: the meters, also while the slot store can't be asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from backlog import selectors as backlog
from capacity import selectors as capacity
from capacity.errors import SlotsUnavailable
from fleet.models import Agent
from fleet.selectors import ceiling, effective_limit


@dataclass(frozen=True, kw_only=True)
class Load:
    """The agents' meters by name; `known` is false while nobody can tell who runs."""

    meters: dict[str, capacity.Meter]
    known: bool


def load_of(agents: Sequence[Agent]) -> Load:
    """The load of the agents; with the slot store out of reach every meter is unknown, never idle."""
    try:
        return Load(meters=capacity.meters(agents), known=True)
    except SlotsUnavailable:
        return Load(meters=_unknown(agents), known=False)


def _unknown(agents: Sequence[Agent]) -> dict[str, capacity.Meter]:
    bound = ceiling()
    queued = backlog.depths([agent.pk for agent in agents])
    return {
        agent.name: capacity.Meter(
            max=effective_limit(agent, bound), active=None, queued=queued.get(agent.pk, 0), paused=agent.paused, version=0
        )
        for agent in agents
    }
