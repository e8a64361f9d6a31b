"""One agent."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backlog import selectors as backlog
from backlog.models import Execution
from fleet import access
from fleet.models import Agent
from fleet.principals import Principal
from runtime.standing import standings

from ..load import load_of, slot_board
from .shared import principal_of, readable_agent

SHOWN_WAITING = 50
SHOWN_RECENT = 20


@never_cache
@login_required
@require_safe
def agent(request: HttpRequest, name: str) -> HttpResponse:
    """One agent: its meter, its slots, its backlog, what it ran, and a form to submit."""
    return render(request, "frontend/agent.html", _agent_context(request, name))


@never_cache
@login_required
@require_safe
def agent_work(request: HttpRequest, name: str) -> HttpResponse:
    """The part of an agent's page that its page renews when the socket tells of a change."""
    return render(request, "frontend/_work.html", _agent_context(request, name))


def _agent_context(request: HttpRequest, name: str) -> dict[str, Any]:
    principal = principal_of(request)
    row = readable_agent(principal, name)
    load = load_of([row])
    if row.name not in load.meters:
        raise Http404
    meter = load.meters[row.name]
    waiting = list(backlog.queue_of(row.pk).select_related("agent").defer("agent__runtime")[:SHOWN_WAITING])
    told = standings(waiting)
    recent = Execution.objects.filter(agent=row).order_by("-created_at", "-id")[:SHOWN_RECENT]
    return {
        "section": "agents",
        "agent": row,
        "meter": meter,
        "known": load.known,
        "slots": slot_board(row, limit=meter.max, now=timezone.now()),
        "waiting": [(told[execution.pk], execution, _may_cancel(principal, row, execution)) for execution in waiting],
        "more_waiting": max(0, meter.queued - SHOWN_WAITING),
        "recent": [(execution, _may_cancel(principal, row, execution)) for execution in recent],
    }


def _may_cancel(principal: Principal, agent: Agent, execution: Execution) -> bool:
    return access.may_cancel(principal, agent, submitted_by_id=execution.submitted_by_id, submitted_key_id=execution.submitted_key_id)
