"""What ran and waited in a span of time."""

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.http import parse_etags
from django.views.decorators.gzip import gzip_page
from rest_framework.fields import DateTimeField
from rest_framework.request import Request

from backlog import history
from core import api
from core.errors import Invalid
from fleet.selectors import agents_visible_to

from .. import timeline
from ..schema import timeline as schema

LONGEST_DAYS = 31
DEFAULT_SPAN = timedelta(hours=1)
DEFAULT_LIMIT, MAX_LIMIT = 5_000, 20_000
MOST_AGENTS = 200


class TimelinePages(api.KeysetPagination):
    """What has ended, the last one first, in larger pages than lists have."""

    ordering = ("-completed_at", "-id")
    parameters = {"limit": api.integer(1, MAX_LIMIT), "cursor": api.text(max_length=2000)}  # noqa: RUF012 - read only

    def get_page_size(self, request: Request) -> int:
        """The `limit` asked for."""
        sent = request.query_params.getlist("limit")
        return self.parameters["limit"]("limit", sent) if sent else DEFAULT_LIMIT


def _names(name: str, sent: list[str]) -> list[str]:
    if len(sent) > MOST_AGENTS:
        raise Invalid(f"{name} may be given at most {MOST_AGENTS} times")
    read = api.text()
    return [read(name, [one]) for one in sent]


PARAMETERS = {"from": api.moment(), "to": api.moment(), "agent": _names, **TimelinePages.parameters}


@method_decorator(gzip_page, name="dispatch")
class TimelineView(api.ApiView):
    """The executions that overlap a span, of every agent one may see."""

    @schema.timeline_list
    def get(self, request: Request) -> HttpResponse:
        """Whatever goes on, then what has ended, the last one first; 304 while that is what the caller has."""
        asked = api.strict_query(request, PARAMETERS)
        now = timezone.now()
        begin, end = _span(asked, now=now)
        visible = agents_visible_to(self.principal)
        agents = list((visible.filter(name__in=asked["agent"]) if "agent" in asked else visible).values_list("pk", "name"))
        body = _body(request, agent_ids=[pk for pk, _ in agents], begin=begin, end=end, first="cursor" not in asked)
        return _answer(request, {"agents": [name for _, name in agents], **body}, begin=begin, end=end, now=now)


def _span(asked: dict[str, Any], *, now: datetime) -> tuple[datetime, datetime]:
    end: datetime = asked.get("to", now)
    begin: datetime = asked["from"] if "from" in asked else _before(end)
    if begin >= end:
        raise Invalid("from must be before to")
    if end - begin > timedelta(days=LONGEST_DAYS):
        raise Invalid(f"from and to may be at most {LONGEST_DAYS} days apart")
    return begin, end


def _before(end: datetime) -> datetime:
    try:
        return end - DEFAULT_SPAN
    except OverflowError:
        raise Invalid("to is too early") from None


def _body(request: Request, *, agent_ids: list[int], begin: datetime, end: datetime, first: bool) -> dict[str, Any]:
    pages = TimelinePages()
    unfinished = timeline.unfinished_of(agent_ids, end=end) if first else timeline.Unfinished(rows=[], truncated=False)
    ended = pages.paginate_queryset(timeline.lines_of(history.ended_of(agent_ids, begin=begin, end=end)), request)
    return {
        "statuses": timeline.STATUSES,
        "columns": timeline.columns_of([*unfinished.rows, *ended], agent_ids=agent_ids),
        "truncated": unfinished.truncated,
        "next": pages.get_next_link(),
    }


def _answer(request: Request, told: dict[str, Any], *, begin: datetime, end: datetime, now: datetime) -> HttpResponse:
    """The moment of the answer is no part of what its tag stands for."""
    spelled = DateTimeField().to_representation
    told = {"from": spelled(begin), "to": spelled(end), **told}
    tag = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]
    headers = {"ETag": f'W/"{tag}"', "Cache-Control": "private, no-cache"}
    if tag in {known.removeprefix("W/").strip('"') for known in parse_etags(request.headers.get("If-None-Match", ""))}:
        return HttpResponse(status=304, headers=headers)
    body = json.dumps({"server_time": spelled(now), **told}, ensure_ascii=False, separators=(",", ":"))
    return HttpResponse(body, content_type="application/json", headers=headers)
