"""One word for each agent's load, the same for the API and every screen."""

from collections.abc import Sequence

from fleet.health import Health
from fleet.models import Agent

from .errors import SlotsUnavailable
from .selectors import Meter, meters


def health_of(meter: Meter) -> Health:
    """The first that applies: paused, more runs than the limit, no slot free, a line in spite of one, runs, nothing.

    Whether anything runs nobody can tell while the slot store is away: unknown, never idle.
    """
    if meter.paused:
        return Health.PAUSED
    if meter.active is None:
        return Health.UNKNOWN
    if meter.active > meter.max:
        return Health.OVER_LIMIT
    if meter.active == meter.max:
        return Health.AT_CAPACITY
    if meter.queued:
        return Health.BACKLOGGED
    return Health.ACTIVE if meter.active else Health.IDLE


def healths(agents: Sequence[Agent]) -> dict[str, Health]:
    """`{name: Health}` of the agents, by two queries and one round trip."""
    try:
        loads = meters(agents) if agents else {}
    except SlotsUnavailable:
        return {agent.name: Health.PAUSED if agent.paused else Health.UNKNOWN for agent in agents}
    return {name: health_of(meter) for name, meter in loads.items()}
