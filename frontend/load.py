"""What the screens show of the slots: the meters, also while the slot store can't be asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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


@dataclass(frozen=True, kw_only=True)
class SlotRow:
    """One place of an agent's: a free one has no `taken`."""

    number: int
    taken: capacity.SlotView | None


def load_of(agents: Sequence[Agent]) -> Load:
    """The load of the agents; with the slot store out of reach every meter is unknown, never idle."""
    try:
        return Load(meters=capacity.meters(agents), known=True)
    except SlotsUnavailable:
        return Load(meters=_unknown(agents), known=False)


def slot_board(agent: Agent, *, limit: int, now: datetime) -> list[SlotRow] | None:
    """The agent's slots by number, taken and free ones, those above a lowered limit too; None while it can't be told."""
    try:
        taken = {view.slot_number: view for view in capacity.slots_of(agent.name, now=now)}
    except SlotsUnavailable:
        return None
    return [SlotRow(number=number, taken=taken.get(number)) for number in sorted({*range(1, limit + 1), *taken})]


def _unknown(agents: Sequence[Agent]) -> dict[str, capacity.Meter]:
    bound = ceiling()
    queued = backlog.depths([agent.pk for agent in agents])
    return {
        agent.name: capacity.Meter(
            max=effective_limit(agent, bound), active=None, queued=queued.get(agent.pk, 0), paused=agent.paused, version=0
        )
        for agent in agents
    }
