"""Under a fleet cap: whose turn it is for a free place, and whether somebody waits for one."""

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Now

from backlog import selectors as rows
from fleet.models import Agent, FleetSettings

from . import slots
from .gate import Gate


def fleet_cap() -> int | None:
    """How many slots the fleet may hold; None: any number."""
    return FleetSettings.objects.filter(pk=1).values_list("max_concurrent_tasks", flat=True).first()


def in_turn() -> QuerySet[Agent, tuple[int, str, int, int | None]]:
    """Id, name, stored limit and ceiling of the agents that may be drained, the one first that was served the longest ago.

    Of those never served, the one first whose head has waited the longest. The ceiling is None while the fleet is paused.
    """
    ceiling = FleetSettings.objects.filter(pk=1, paused=False).values("max_parallel_tasks_ceiling")
    waiting = rows.agents_waiting().filter(paused=False).annotate(ceiling=Subquery(ceiling))
    head = rows.startable(OuterRef("pk")).values("queued_at")[:1]  # type: ignore[arg-type]  # of each agent
    by_turn = waiting.order_by(F("served_at").asc(nulls_first=True), Subquery(head), "pk")
    return by_turn.values_list("pk", "name", "max_parallel_tasks", "ceiling")


def with_room() -> list[tuple[int, str]]:
    """Id and name of the agents in turn that have, as far as the gate knows, a free slot of their own; raises `SlotsUnavailable`."""
    waiting = list(in_turn())
    counts = slots.states([name for _, name, _, _ in waiting]) if waiting else {}
    return [(pk, name) for pk, name, stored, ceiling in waiting if counts[name].active < min(stored, ceiling or 0)]


def has_no_place(gate: Gate) -> bool:
    """Whether the fleet has no place for a newcomer: its cap is reached, or what is free is due to another agent's waiting row.

    Between a run's end and the drain that follows a place is free for a moment, and whoever asks often enough would have it
    each time. Raises `SlotsUnavailable`.
    """
    if gate.fleet_limit is None:
        return False
    return slots.fleet_count() >= gate.fleet_limit or any(pk != gate.agent.pk for pk, _ in with_room())


def note_served(agent_id: int) -> None:
    """It goes to the end of the turn."""
    Agent.objects.filter(pk=agent_id).update(served_at=Now())
