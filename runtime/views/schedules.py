"""Schedules of an agent, and what became of their due times."""

import uuid
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from core import api
from fleet import access

from .. import schedule_selectors as selectors
from .. import waiting
from ..models import Schedule
from ..schema import schedules as schema
from ..serializers.controls import NothingIn
from ..serializers.schedules import FiringOut, ScheduleIn, ScheduleOut, SchedulePatchIn
from ..services import schedules
from ..services.submit import Submitted


class ScheduleListView(api.ApiView):
    """The schedules of one agent, and new ones."""

    @schema.schedule_list
    def get(self, request: Request, name: str) -> Response:
        """A page of them by name."""
        api.strict_query(request, api.KeysetPagination.parameters)
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.READ)
        pages = api.KeysetPagination()
        pages.ordering = ("name", "id")
        return pages.get_paginated_response(_rendered(pages.paginate_queryset(selectors.schedules_of(agent), request)))

    @schema.schedule_create
    def post(self, request: Request, name: str) -> Response:
        """201 and where it is."""
        api.strict_query(request)
        _check_owned(self, name)
        schedule = schedules.create_schedule(principal=self.principal, agent_name=name, values=ScheduleIn.read(request))
        where = reverse("runtime:schedule-detail", args=[name, schedule.pk])
        return Response(_rendered([schedule])[0], status=201, headers={"Location": where})


class ScheduleView(api.ApiView):
    """One schedule."""

    @schema.schedule_detail
    def get(self, request: Request, name: str, schedule_id: uuid.UUID) -> Response:
        """When it comes due next, and what became of the last time."""
        api.strict_query(request)
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.READ)
        return Response(_rendered([selectors.schedule_of(agent, schedule_id)])[0])

    @schema.schedule_update
    def patch(self, request: Request, name: str, schedule_id: uuid.UUID) -> Response:
        """The schedule as it is now; what is left out stays."""
        api.strict_query(request)
        _check_owned(self, name)
        changes = SchedulePatchIn.read(request)
        changed = schedules.change_schedule(principal=self.principal, agent_name=name, schedule_id=schedule_id, changes=changes)
        return Response(_rendered([changed])[0])

    @schema.schedule_delete
    def delete(self, request: Request, name: str, schedule_id: uuid.UUID) -> HttpResponse:
        """204 once it fires no more."""
        api.strict_query(request)
        schedules.delete_schedule(principal=self.principal, agent_name=name, schedule_id=schedule_id)
        return HttpResponse(status=204)


class ScheduleRunView(api.ApiView):
    """Running a schedule's task now."""

    @schema.schedule_run
    def post(self, request: Request, name: str, schedule_id: uuid.UUID) -> Response:
        """202 with its execution."""
        api.strict_query(request)
        _check_owned(self, name)
        NothingIn.read(request)
        submitted = schedules.run_schedule(principal=self.principal, agent_name=name, schedule_id=schedule_id)
        return Response(_accepted(submitted), status=202, headers={"Location": waiting.location_of(submitted.execution_id)})


class FiringListView(api.ApiView):
    """What became of one schedule's due times."""

    @schema.firing_list
    def get(self, request: Request, name: str, schedule_id: uuid.UUID) -> Response:
        """A page of them, the last first."""
        api.strict_query(request, api.KeysetPagination.parameters)
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.READ)
        pages = api.KeysetPagination()
        pages.ordering = ("-due_at", "-id")
        firings = pages.paginate_queryset(selectors.firings_of(selectors.schedule_of(agent, schedule_id)), request)
        return pages.get_paginated_response(list(FiringOut(firings, many=True, context={"made": selectors.made_by(firings)}).data))


def _check_owned(view: api.ApiView, name: str) -> None:
    """That the agent is theirs: who may not is told so before their body is looked at."""
    access.agent_for(principal=view.principal, name=name, verb=access.Verb.OWN)


def _rendered(rows: list[Schedule]) -> list[Any]:
    last = selectors.last_firings(rows)
    return list(ScheduleOut(rows, many=True, context={"last": last, "made": selectors.made_by(list(last.values()))}).data)


def _accepted(submitted: Submitted) -> dict[str, Any]:
    queued = {} if submitted.queue_position is None else {"queue_position": submitted.queue_position}
    return {
        "status": "queued" if queued else "accepted",
        "execution_id": str(submitted.execution_id),
        "agent_name": submitted.agent.name,
        "async_mode": True,
        **queued,
    }
