"""Reading executions, one agent's line, and the cancel of one execution."""

import uuid
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from backlog import selectors as backlog
from backlog.models import LINE, TERMINAL, Execution
from core import api
from fleet import access
from fleet.selectors import fleet_settings

from .. import selectors, waiting
from ..schema import executions as schema
from ..serializers.controls import NothingIn
from ..serializers.executions import ExecutionOut, QueuedOut
from ..services import controls
from ..standing import standings
from .filters import FILTERS, lookups_of

LONGEST_WAIT_SECONDS = 60


class ExecutionListView(api.ApiView):
    """The executions of every agent one may see."""

    @schema.execution_list
    def get(self, request: Request) -> Response:
        """A page of them, newest first."""
        asked = api.strict_query(request, {"agent": api.text(), **FILTERS})
        return _page(request, selectors.executions_for(self.principal), lookups_of(asked, principal=self.principal))


class AgentExecutionListView(api.ApiView):
    """The executions of one agent."""

    @schema.agent_execution_list
    def get(self, request: Request, name: str) -> Response:
        """A page of them, newest first."""
        asked = api.strict_query(request, FILTERS)
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.READ)
        return _page(request, selectors.executions_of(agent), lookups_of(asked, principal=self.principal))


class ExecutionView(api.ApiView):
    """One execution, by its id alone or under its agent."""

    @schema.execution_detail("execution_detail")
    def get(self, request: Request, execution_id: uuid.UUID, name: str | None = None) -> HttpResponse:
        """The execution; with `wait` once it has ended, or as it is then."""
        asked = api.strict_query(request, {"wait": api.integer(0, LONGEST_WAIT_SECONDS)})
        row = selectors.execution_for(principal=self.principal, execution_id=execution_id, agent_name=name)
        if not asked.get("wait") or row.status in TERMINAL:
            return Response(waiting.rendered(row))
        state = waiting.StateOfExecution(execution_id=execution_id)
        return waiting.when_finished(request, execution_id=execution_id, seconds=asked["wait"], render=state)


@extend_schema_view(get=schema.execution_detail("agent_execution_detail"))
class AgentExecutionView(ExecutionView):
    """One execution as one of its agent's."""


class CancelView(api.ApiView):
    """The cancel of one execution."""

    @schema.execution_cancel("execution_cancel")
    def post(self, request: Request, execution_id: uuid.UUID, name: str | None = None) -> Response:
        """200 where it is over now, 202 while its work is being stopped; again: the same answer."""
        api.strict_query(request)
        NothingIn.read(request)
        if name is not None:
            selectors.execution_for(principal=self.principal, execution_id=execution_id, agent_name=name)
        answer = controls.cancel_execution(principal=self.principal, execution_id=execution_id)
        return Response({"status": answer}, status=200 if answer == "cancelled" else 202)


@extend_schema_view(post=schema.execution_cancel("agent_execution_cancel"))
class AgentCancelView(CancelView):
    """The cancel of one execution of the agent's."""


class QueueView(api.ApiView):
    """One agent's line."""

    @schema.queue_detail
    def get(self, request: Request, name: str) -> Response:
        """A page of it, first in line first."""
        api.strict_query(request, api.KeysetPagination.parameters)
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.READ)
        pages = api.KeysetPagination()
        pages.ordering = LINE
        rows = pages.paginate_queryset(backlog.queue_of(agent.pk).select_related("agent").defer("agent__runtime"), request)
        return Response(
            {
                "agent_name": agent.name,
                "paused": agent.paused or fleet_settings().paused,
                "depth": backlog.depths([agent.pk]).get(agent.pk, 0),
                "max_backlog_depth": agent.max_backlog_depth,
                "results": QueuedOut(rows, many=True, context={"standings": standings(rows)}).data,
                "next": pages.get_next_link(),
            }
        )


def _page(request: Request, rows: QuerySet[Execution], lookups: dict[str, Any]) -> Response:
    pages = api.KeysetPagination()
    found = pages.paginate_queryset(selectors.matching(rows, lookups), request)
    return pages.get_paginated_response(list(ExecutionOut(found, many=True, context={"standings": standings(found)}).data))
