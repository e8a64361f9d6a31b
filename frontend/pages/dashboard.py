"""The dashboard: the fleet in four figures, and its agents as a list or as a timeline."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backlog.occupancy import longest_wait
from capacity import selectors as capacity
from capacity.errors import SlotsUnavailable
from fleet.models import Agent, FleetSettings
from fleet.selectors import agents_visible_to, fleet_settings

from ..agent_rows import SORTS, Found, found_by, in_order, rows_of
from ..agent_search import MAX_CHARACTERS
from ..load import Load, load_of
from ..tiles import tiles_of
from .shared import principal_of

ROWS_A_PAGE = 50
VIEWS = ("list", "timeline")
#: Each column that can be sorted by, as it is headed.
COLUMNS = {"name": "Agent", "used": "Slots", "waiting": "Waiting", "health": "Health"}


@never_cache
@login_required
@require_safe
def dashboard(request: HttpRequest) -> HttpResponse:
    """The figures and one of the two views; what is shown is in the address, and a socket keeps it right from then on."""
    agents = list(agents_visible_to(principal_of(request)).select_related("owner").defer("runtime"))
    load, fleet = load_of(agents), fleet_settings()
    running = _running(load, fleet)
    view = _one_of(request, "view", VIEWS)
    context = {
        "section": "dashboard",
        "view": view,
        "known": load.known,
        "agents": len(agents),
        "fleet": fleet,
        "tiles": tiles_of(load, fleet_limit=fleet.max_concurrent_tasks, running=running),
        "oldest": longest_wait([agent.pk for agent in agents]),
        "query": request.GET.get("q", "")[:MAX_CHARACTERS],
    }
    shown = _list_context(request, agents=agents, load=load, fleet=fleet, running=running) if view == "list" else {}
    return render(request, "frontend/dashboard.html", context | shown)


@never_cache
@login_required
@require_safe
def oldest_wait(request: HttpRequest) -> HttpResponse:
    """The figure that no socket tells: the page asks for it when the longest wait may have ended."""
    agents = agents_visible_to(principal_of(request)).values_list("pk", flat=True)
    return render(request, "frontend/_oldest.html", {"oldest": longest_wait(list(agents))})


def _list_context(request: HttpRequest, *, agents: Sequence[Agent], load: Load, fleet: FleetSettings, running: int) -> dict[str, Any]:
    query = request.GET.get("q", "")
    sort = _one_of(request, "sort", [name for column in SORTS for name in (column, f"-{column}")])
    found = in_order(found_by(query, agents=agents, meters=load.meters, reader=request.user.get_username()), sort)
    page: Page[Found] = Paginator(found, ROWS_A_PAGE).get_page(request.GET.get("page"))
    rows = rows_of(list(page), principal=principal_of(request), fleet=fleet, running=running, now=timezone.now())
    return {
        "sort": sort,
        "page": page,
        "rows": rows,
        "columns": [_column(request, name=name, title=title, sort=sort) for name, title in COLUMNS.items()],
        "earlier": _address(request, page=page.previous_page_number()) if page.has_previous() else None,
        "later": _address(request, page=page.next_page_number()) if page.has_next() else None,
    }


def _column(request: HttpRequest, *, name: str, title: str, sort: str) -> dict[str, str]:
    # A figure is looked for from its top, a name from its beginning.
    first, other = (name, f"-{name}") if name in {"name", "health"} else (f"-{name}", name)
    direction = {name: "ascending", f"-{name}": "descending"}.get(sort, "")
    return {"title": title, "direction": direction, "href": _address(request, sort=other if sort == first else first)}


def _address(request: HttpRequest, **changes: object) -> str:
    """The page's own, with some of its parameters replaced; another order begins with its first page."""
    kept = {name: request.GET[name] for name in ("q", "sort", "page") if request.GET.get(name)}
    if "sort" in changes:
        kept.pop("page", None)
    return f"?{urlencode(kept | changes)}"


def _one_of(request: HttpRequest, name: str, values: Sequence[str]) -> str:
    value = request.GET.get(name, "")
    return value if value in values else values[0]


def _running(load: Load, fleet: FleetSettings) -> int:
    """How many slots the whole fleet holds; counted only where it has a cap."""
    if fleet.max_concurrent_tasks is None or not load.known:
        return 0
    try:
        return capacity.held_in_fleet()
    except SlotsUnavailable:
        return 0
