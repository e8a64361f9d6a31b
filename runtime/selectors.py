"""Reads of executions for a principal."""

import uuid

from django.db.models import QuerySet

from backlog.models import Execution
from fleet import access
from fleet.errors import AccessDenied
from fleet.principals import Principal
from fleet.selectors import agents_visible_to

from .errors import ExecutionNotFound


def executions_for(principal: Principal) -> QuerySet[Execution]:
    """The executions of the agents that the principal may see."""
    return Execution.objects.filter(agent__in=agents_visible_to(principal)).select_related("agent")


def execution_for(*, principal: Principal, execution_id: uuid.UUID) -> Execution:
    """The execution, if the principal may read it; raises `ExecutionNotFound` or `AccessDenied`."""
    row = Execution.objects.filter(pk=execution_id).select_related("agent").first()
    if row is None:
        raise ExecutionNotFound
    access.require(principal, "read", row.agent)
    return row


def cancellable_for(*, principal: Principal, execution_id: uuid.UUID) -> Execution:
    """The execution, if the principal may cancel it: its agent's owner, or who submitted it."""
    row = execution_for(principal=principal, execution_id=execution_id)
    if not access.may_cancel(principal, row.agent, submitted_by_id=row.submitted_by_id, submitted_key_id=row.submitted_key_id):
        raise AccessDenied
    return row
