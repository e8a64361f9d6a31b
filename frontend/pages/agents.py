"""The tiles of all agents."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from fleet.selectors import agents_visible_to

from ..load import load_of
from .shared import principal_of


@never_cache
@login_required
@require_safe
def agents(request: HttpRequest) -> HttpResponse:
    """A tile for each agent that the reader may see; the socket keeps the meters right from then on."""
    rows = list(agents_visible_to(principal_of(request)).select_related("owner").defer("runtime"))
    load = load_of(rows)
    # An agent that was deleted between the two reads has no meter.
    tiles = [(row, load.meters[row.name]) for row in rows if row.name in load.meters]
    return render(request, "frontend/agents.html", {"tiles": tiles, "known": load.known, "section": "agents"})
