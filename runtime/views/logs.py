"""Reading the log of a run, and waiting for it to go on."""

import uuid
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_view
from rest_framework.request import Request

from backlog.models import TERMINAL, ExecutionEvent
from core import api
from core.asgi import Answer

from .. import selectors, waiting
from ..schema import executions as schema
from ..serializers.executions import EventOut
from .executions import LONGEST_WAIT_SECONDS

EVENTS_A_PAGE = 500
LARGEST_SEQ = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """Renders a log's entries behind `after`."""

    execution_id: uuid.UUID
    after: int
    #: Where the log is read, without a query.
    url: str

    def __call__(self, *, timed_out: bool) -> Answer:
        """200 with the page; an empty one where the wait ended before there was an entry."""
        found = list(self.entries().order_by("seq")[: EVENTS_A_PAGE + 1])
        page = found[:EVENTS_A_PAGE]
        following = f"{self.url}?{urlencode({'after': page[-1].seq})}" if len(found) > len(page) else None
        return Answer.json(200, {"results": EventOut(page, many=True).data, "next": following})

    def entries(self) -> QuerySet[ExecutionEvent]:
        """Those that there are now."""
        return ExecutionEvent.objects.filter(execution=self.execution_id, seq__gt=self.after)


class EventListView(api.ApiView):
    """The log of one execution's run."""

    @schema.event_list("event_list")
    def get(self, request: Request, execution_id: uuid.UUID, name: str | None = None) -> HttpResponse:
        """Its entries after `after`, in their order; `next` is null at the present end. With `wait` it is waited for there."""
        asked = api.strict_query(request, {"after": api.integer(0, LARGEST_SEQ), "wait": api.integer(0, LONGEST_WAIT_SECONDS)})
        row = selectors.execution_for(principal=self.principal, execution_id=execution_id, agent_name=name)
        page = LogPage(execution_id=row.pk, after=asked.get("after", 0), url=request.build_absolute_uri(request.path))
        if not asked.get("wait") or row.status in TERMINAL or page.entries().exists():
            return waiting.sent(page(timed_out=False))
        return waiting.when_logged(request, execution_id=row.pk, after=page.after, seconds=asked["wait"], render=page)


@extend_schema_view(get=schema.event_list("agent_event_list"))
class AgentEventListView(EventListView):
    """The log of one execution of the agent's."""
