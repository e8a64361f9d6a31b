"""Where the runs of an agent go on: where it is reached now, or where it was when they began."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, OuterRef, Subquery
from django.db.models.functions import Coalesce, Now

from .models import MAX_TIMEOUT_SECONDS, Agent, FormerRuntime, RuntimeKind

#: Between the look at an agent and the stamp of a run that began by it; between the stamp of a change and its commit.
SLACK = timedelta(seconds=5)
#: Longer than any run holds its slot.
KEPT = timedelta(seconds=2 * MAX_TIMEOUT_SECONDS)


@dataclass(frozen=True)
class Way:
    """A kind of runtime and its settings."""

    kind: str
    settings: dict[str, Any]


def keep_former(agent: Agent, *, kind: str, runtime: dict[str, Any]) -> None:
    """Keep how `agent`, locked, is reached now, if it will be reached elsewhere by `kind` and `runtime`.

    Another key for the same server is no other place: there the new one counts, for the old one may be refused by now.
    """
    is_elsewhere = kind != agent.runtime_kind or (kind == RuntimeKind.HTTP and runtime["url"] != agent.runtime["url"])
    if is_elsewhere:
        FormerRuntime.objects.create(agent=agent, kind=agent.runtime_kind, runtime=agent.runtime)


def ways_of(agent: Agent, *, granted_at: datetime, started_at: datetime) -> list[Way]:
    """The ways one of which a run began by that was granted its slot and started then: nearly always one."""
    ways = []
    for former in agent.former_runtimes.filter(replaced_at__gt=granted_at - SLACK).order_by("replaced_at", "pk"):
        ways.append(Way(former.kind, former.runtime))
        if former.replaced_at > started_at:
            return ways
    return [*ways, Way(agent.runtime_kind, agent.runtime)]


def kind_of_start(*, agent: str, started_at: str) -> Coalesce:
    """The kind by which a row's run began, as an expression; `agent` and `started_at` name its columns."""
    former = FormerRuntime.objects.filter(agent=OuterRef(agent), replaced_at__gt=OuterRef(started_at))
    return Coalesce(Subquery(former.order_by("replaced_at", "pk").values("kind")[:1]), F(f"{agent}__runtime_kind"))


def forget_former() -> None:
    """Delete what no run can have begun by any more."""
    FormerRuntime.objects.filter(replaced_at__lt=Now() - KEPT).delete()
