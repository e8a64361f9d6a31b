"""Under a fleet cap: whose turn it is for a free place, and whether somebody waits for one."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Least, Now

from backlog import selectors as rows
from fleet.models import Agent, FleetSettings

from . import slots
from .gate import Gate


@dataclass(frozen=True, kw_only=True)
class Turn:
    """An agent that may be drained, and when it was served last, as they were at `looked_at` on the database's clock."""

    agent_id: int
    name: str
    served_at: datetime | None
    looked_at: datetime


def fleet_cap() -> int | None:
    """How many slots the fleet may hold; None: any number."""
    return FleetSettings.objects.filter(pk=1).values_list("max_concurrent_tasks", flat=True).first()


def in_turn() -> QuerySet[Agent, tuple[int, str, datetime | None, datetime, int, int | None]]:
    """Id, name, when they were last served, now, stored limit and ceiling of the agents that may be drained.

    The one first that was served the longest ago; of those never served, the one first whose head has waited the
    longest. The ceiling is None while the fleet is paused.
    """
    ceiling = FleetSettings.objects.filter(pk=1, paused=False).values("max_parallel_tasks_ceiling")
    waiting = rows.agents_waiting().filter(paused=False).annotate(ceiling=Subquery(ceiling), now=Now())
    head = rows.startable(OuterRef("pk")).values("queued_at")[:1]  # type: ignore[arg-type]  # of each agent
    by_turn = waiting.order_by(F("served_at").asc(nulls_first=True), Subquery(head), "pk")
    return by_turn.values_list("pk", "name", "served_at", "now", "max_parallel_tasks", "ceiling")


def with_room() -> list[Turn]:
    """The agents in turn that have, as far as the gate knows, a free slot of their own; raises `SlotsUnavailable`."""
    waiting = list(in_turn())
    counts = slots.states([name for _, name, *_ in waiting]) if waiting else {}
    return [
        Turn(agent_id=pk, name=name, served_at=served_at, looked_at=now)
        for pk, name, served_at, now, stored, ceiling in waiting
        if counts[name].active < min(stored, ceiling or 0)
    ]


def has_no_place(gate: Gate) -> bool:
    """Whether the fleet has no place for a newcomer: its cap is reached, or what is free is due to another agent's waiting row.

    Between a run's end and the drain that follows a place is free for a moment, and whoever asks often enough would have it
    each time. Raises `SlotsUnavailable`.
    """
    if gate.fleet_limit is None:
        return False
    return slots.fleet_count() >= gate.fleet_limit or any(turn.agent_id != gate.agent.pk for turn in with_room())


def take(turn: Turn) -> bool:
    """Whether the turn is this caller's: the agent goes to its end. Of any number who looked at the same moment one has it."""
    unserved = Q(served_at=None) | Q(served_at__lte=turn.looked_at)
    return Agent.objects.filter(unserved, pk=turn.agent_id).update(served_at=Now()) == 1


def put_back(turn: Turn) -> None:
    """Nothing was given for the turn: the agent's place in it is the one that it had."""
    former = None if turn.served_at is None else Least("served_at", turn.served_at)
    Agent.objects.filter(pk=turn.agent_id).update(served_at=former)
