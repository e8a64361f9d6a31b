"""The executions of all agents, newest first, and what is done to many of them."""

import json
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.db.models.expressions import Subquery
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from rest_framework.request import Request

from backlog.models import TERMINAL, Execution, Status, Trigger
from core import api
from core.api.fields import parse_uuid
from core.errors import Invalid
from fleet import access
from fleet.principals import Principal
from fleet.selectors import agents_visible_to
from runtime import errors
from runtime.selectors import executions_for, matching
from runtime.views.filters import lookups_of

from .execution_filters import SPANS, Filters, filters_of
from .shared import principal_of

#: Characters of a message, and of an error, in a row.
PREVIEW = 160
MOST_NEW = 99
MOST_NAMES = 200
SPAN_WORDS = {"1h": "the last hour", "24h": "the last 24 hours", "7d": "the last 7 days", "30d": "the last 30 days"}
#: What a run can have come to, offered as one types; any other code can be typed as well.
ERROR_CODES = sorted(
    kind.code
    for kind in (
        errors.AccessLost, errors.AgentAuth, errors.AgentDeleted, errors.AgentError, errors.AgentRateLimited, errors.AgentUnreachable,
        errors.Cancelled, errors.Expired, errors.InvalidRequest, errors.LeaseLost, errors.SessionEnded, errors.Timeout, errors.WorkerLost,
    )
)  # fmt: skip
_LONG = ("message", "response", "error", "system_prompt", "allowed_tools", "metadata")


@never_cache
@login_required
@require_safe
def executions(request: HttpRequest) -> HttpResponse:
    """A page of the executions that match the filters in the URL."""
    principal, now = principal_of(request), timezone.now()
    filters = filters_of(request, now=now)
    pages = api.KeysetPagination()
    try:
        rows = pages.paginate_queryset(_matching(principal, filters), Request(request))
    except Invalid:
        return redirect(f"{reverse('frontend:execution-list')}?{filters.query}")
    return render(
        request,
        "frontend/executions.html",
        {
            "section": "executions",
            "rows": [_row(principal, row) for row in rows],
            "filters": filters,
            "body": json.dumps(filters.body),
            "next": pages.get_next_link(),
            "previous": pages.get_previous_link(),
            "loaded": now,
            "statuses": [(value, _STATUS_WORDS.get(value, value)) for value in Status.values],
            "triggers": Trigger.values,
            "spans": [(name, SPAN_WORDS[name]) for name in SPANS],
            "codes": ERROR_CODES,
            "names": list(agents_visible_to(principal).values_list("name", flat=True)[:MOST_NAMES]),
        },
    )


@never_cache
@login_required
@require_safe
def execution_rows(request: HttpRequest) -> HttpResponse:
    """The rows of `ids` as they are now, and how many that match are newer than the first of them (`since` where there is none)."""
    principal, filters = principal_of(request), filters_of(request, now=timezone.now())
    ids = [one for text in request.GET.get("ids", "").split(",")[: api.KeysetPagination.page_size] if (one := parse_uuid(text))]
    shown = {row.pk: row for row in _lean(executions_for(principal).filter(pk__in=ids))}
    matched = _matching(principal, filters)
    if ids:
        matched = matched.filter(created_at__gt=Subquery(executions_for(principal).filter(pk=ids[0]).order_by().values("created_at")[:1]))
    newer = matched.order_by()[: MOST_NEW + 1].count() if request.GET.get("newest") == "1" else 0
    rows = [_row(principal, shown[one]) for one in ids if one in shown]
    return render(request, "frontend/_executions.html", {"rows": rows, "newer": newer, "most": MOST_NEW})


_STATUS_WORDS: dict[str, str] = {Status.QUEUED: "waiting", Status.SUCCESS: "succeeded"}


def _matching(principal: Principal, filters: Filters) -> QuerySet[Execution]:
    return _lean(matching(executions_for(principal), lookups_of(filters.asked, principal=principal)))


def _lean(rows: QuerySet[Execution]) -> QuerySet[Execution]:
    """Without texts that may be megabytes."""
    return rows.defer(*_LONG, "agent__runtime").annotate(preview=Left("message", PREVIEW), error_preview=Left("error", PREVIEW))


def _row(principal: Principal, row: Execution) -> dict[str, Any]:
    mine = {"submitted_by_id": row.submitted_by_id, "submitted_key_id": row.submitted_key_id}
    return {
        "execution": row,
        "may_cancel": row.status not in TERMINAL and access.may_cancel(principal, row.agent, **mine),
        "may_retry": row.status in TERMINAL and row.agent.deleted_at is None,
        "waited_until": row.started_at or row.completed_at,
    }
