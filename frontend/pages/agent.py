"""One agent."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from fleet.selectors import fleet_settings

from ..load import load_of
from .agent_capacity import capacity_of
from .agent_line import SHOWN, line_of
from .agent_past import changes_of, recent_of, spent_of
from .agent_slots import board_of
from .shared import principal_of, readable_agent


@never_cache
@login_required
@require_safe
def agent(request: HttpRequest, name: str) -> HttpResponse:
    """One agent: its capacity, its slots, its backlog, what it ran, and a form to submit."""
    return render(request, "frontend/agent.html", _context(request, name, past=True))


@never_cache
@login_required
@require_safe
def agent_work(request: HttpRequest, name: str) -> HttpResponse:
    """The parts of an agent's page that its page renews when the socket tells of a change; what it spent only with `?past`."""
    return render(request, "frontend/_work.html", _context(request, name, past="past" in request.GET))


def _context(request: HttpRequest, name: str, *, past: bool) -> dict[str, Any]:
    principal = principal_of(request)
    row = readable_agent(principal, name)
    load = load_of([row])
    if row.name not in load.meters:
        raise Http404
    meter, fleet = load.meters[row.name], fleet_settings()
    capacity = capacity_of(principal, row, meter=meter, fleet=fleet)
    return {
        "section": "agents",
        "agent": row,
        "meter": meter,
        "known": load.known,
        "capacity": capacity,
        "places": board_of(principal, row, limit=meter.max),
        "waiting": line_of(principal, row, fleet=fleet),
        "more_waiting": max(0, meter.queued - SHOWN),
        "recent": recent_of(row),
        "changes": changes_of(row) if capacity.may_own else None,
        "spent": spent_of(row) if past else None,
    }
