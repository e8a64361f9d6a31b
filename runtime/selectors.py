"""Reads of executions for a principal."""

import uuid
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from backlog.models import Execution
from fleet import access
from fleet.errors import AccessDenied
from fleet.models import Agent
from fleet.principals import Principal
from fleet.selectors import agents_visible_to

from .errors import ExecutionNotFound

#: The lookup of a text in the message, and how many executions are looked through for it: no index knows it.
TEXT = "message__icontains"
LOOKED_THROUGH = 10_000


def executions_for(principal: Principal) -> QuerySet[Execution]:
    """The executions of the agents that the principal may see."""
    return _with_agent(Execution.objects.filter(agent__in=agents_visible_to(principal).order_by()))


def matching(rows: QuerySet[Execution], lookups: Mapping[str, Any]) -> QuerySet[Execution]:
    """Those of the rows that match; a text is looked for in the newest of what all other lookups leave."""
    rest = rows.filter(**{name: value for name, value in lookups.items() if name != TEXT})
    if TEXT not in lookups:
        return rest
    newest = rest.order_by("-created_at", "-id").values("pk")[:LOOKED_THROUGH]
    return rows.filter(pk__in=newest, **{TEXT: lookups[TEXT]})


def executions_of(agent: Agent) -> QuerySet[Execution]:
    """The executions of one agent."""
    return _with_agent(Execution.objects.filter(agent=agent))


def execution(execution_id: uuid.UUID) -> Execution:
    """The execution, for whoever was let in before; raises `ExecutionNotFound`."""
    row = _with_agent(Execution.objects.filter(pk=execution_id)).first()
    if row is None:
        raise ExecutionNotFound
    return row


def execution_for(*, principal: Principal, execution_id: uuid.UUID, agent_name: str | None = None) -> Execution:
    """The execution, if the principal may read it; where `agent_name` is given, only as that living agent's.

    Raises `ExecutionNotFound` or what `access.agent_for` does.
    """
    agent = None if agent_name is None else access.agent_for(principal=principal, name=agent_name, verb=access.Verb.READ)
    row = execution(execution_id)
    if agent is not None and row.agent_id != agent.pk:
        raise ExecutionNotFound
    if agent is None:
        access.require(principal, access.Verb.READ, row.agent)
    return row


def cancellable_for(*, principal: Principal, execution_id: uuid.UUID) -> Execution:
    """The execution, if the principal may cancel it: its agent's owner, or who submitted it."""
    row = execution_for(principal=principal, execution_id=execution_id)
    if not access.may_cancel(principal, row.agent, submitted_by_id=row.submitted_by_id, submitted_key_id=row.submitted_key_id):
        raise AccessDenied
    return row


def _with_agent(rows: QuerySet[Execution]) -> QuerySet[Execution]:
    # Without its secrets: nobody here reads them, and each would be decrypted.
    return rows.select_related("agent").defer("agent__runtime")
