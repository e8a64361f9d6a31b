"""The tiles of all agents."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from fleet.selectors import agents_visible_to

from ..agent_rows import found_by
from ..agent_search import MAX_CHARACTERS
from ..load import load_of
from .shared import principal_of


@never_cache
@login_required
@require_safe
def agents(request: HttpRequest) -> HttpResponse:
    """A tile for each agent that the reader may see; the socket keeps the meters right from then on."""
    rows = list(agents_visible_to(principal_of(request)).select_related("owner").defer("runtime"))
    load = load_of(rows)
    query = request.GET.get("q", "")[:MAX_CHARACTERS]
    tiles = found_by(query, agents=rows, meters=load.meters, reader=request.user.get_username())
    context = {"tiles": tiles, "agents": len(rows), "known": load.known, "query": query, "section": "agents"}
    return render(request, "frontend/agents.html", context)
