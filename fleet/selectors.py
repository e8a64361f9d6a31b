"""Reads of the fleet."""

from django.db.models import Exists, Q, QuerySet

from .first_values import fleet_values
from .models import Agent, AuditEntry, FleetSettings, Share
from .principals import Principal, PrincipalKind


def living_agents() -> QuerySet[Agent]:
    """All agents that are not deleted."""
    return Agent.objects.filter(deleted_at=None)


def agents_visible_to(principal: Principal, queryset: QuerySet[Agent] | None = None) -> QuerySet[Agent]:
    """The living agents that `principal` may read, by name; the same rule as `access.may`, for lists."""
    agents = (living_agents() if queryset is None else queryset.filter(deleted_at=None)).order_by("name")
    if principal.kind is PrincipalKind.SYSTEM or principal.user.is_superuser:
        return agents
    shared = Share.objects.filter(user=principal.user.pk).values("agent")
    return agents.filter(Q(owner=principal.user.pk) | Q(pk__in=shared) | Q(pk=principal.agent_id))


def fleet_settings() -> FleetSettings:
    """The row of fleet-wide settings; where it is missing, as it would be made."""
    return FleetSettings.objects.first() or first_fleet_settings()


def fleet_paused() -> Exists:
    """Whether the whole fleet is paused, as a column of another query."""
    return Exists(FleetSettings.objects.filter(paused=True))


def first_fleet_settings() -> FleetSettings:
    """The settings a new fleet starts with, not saved."""
    return FleetSettings(**fleet_values())


def ceiling() -> int:
    """The largest number of parallel tasks that an agent may have now."""
    return fleet_settings().max_parallel_tasks_ceiling


def effective_limit(agent: Agent, ceiling: int) -> int:
    """How many may run at once: the stored limit is never rewritten by the ceiling, only held below it."""
    return min(agent.max_parallel_tasks, ceiling)


def audit_of(agent: Agent) -> QuerySet[AuditEntry]:
    """The agent's changes of settings, newest first."""
    return AuditEntry.objects.filter(agent=agent)


def audit_of_fleet() -> QuerySet[AuditEntry]:
    """Every change, each with its agent."""
    return AuditEntry.objects.select_related("agent").defer("agent__runtime")
