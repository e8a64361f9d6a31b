"""One execution: what was asked, how it went, what came of it."""

import json
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backlog.models import TERMINAL, Execution, ExecutionEvent, Status
from fleet import access
from fleet.errors import AccessDenied
from fleet.principals import Principal
from runtime.errors import ExecutionNotFound
from runtime.selectors import execution_for
from runtime.services.event_log import REPAIR
from runtime.standing import standing

from .shared import principal_of

#: Retries shown of one execution.
MOST_RETRIES = 20
#: Characters of a text that are shown at once, and that the page has at all; the API has the rest.
FOLDED_FROM, MOST_SHOWN = 2_000, 200_000


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text as the page shows it: folded where it is long, cut where it is too long."""

    shown: str
    length: int

    @property
    def long(self) -> bool:
        """Whether it is folded."""
        return self.length > FOLDED_FROM or self.shown.count("\n") > FOLDED_FROM // 50

    @property
    def cut(self) -> bool:
        """Whether the page doesn't have all of it."""
        return self.length > len(self.shown)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something that happened to it, and what began then: `kind` of the span that lasts `until` the next step."""

    word: str
    at: datetime
    kind: str
    span: str
    until: datetime | None
    #: Of the whole time, in thousandths: where the span begins and how long it is.
    x: int
    width: int


@never_cache
@login_required
@require_safe
def execution(request: HttpRequest, execution_id: uuid.UUID) -> HttpResponse:
    """One execution; the page follows its log by itself."""
    return render(request, "frontend/execution.html", _context(request, execution_id))


@never_cache
@login_required
@require_safe
def execution_work(request: HttpRequest, execution_id: uuid.UUID) -> HttpResponse:
    """The part of its page that its page renews when the socket tells of a change."""
    return render(request, "frontend/_execution.html", _context(request, execution_id))


def _context(request: HttpRequest, execution_id: uuid.UUID) -> dict[str, Any]:
    principal = principal_of(request)
    row = _readable(principal, execution_id)
    now = timezone.now()
    texts = {"message": row.message, "system_prompt": row.system_prompt, "response": row.response, "error": row.error}
    return {
        "section": "executions",
        "execution": row,
        "standing": standing(row),
        "steps": _steps(row, now=now),
        "ended": row.status in TERMINAL,
        "may_cancel": row.status not in TERMINAL and _may_cancel(principal, row),
        "may_retry": row.status in TERMINAL and row.agent.deleted_at is None and access.may(principal, access.Verb.SUBMIT, row.agent),
        "duplicates": max(0, row.dispatches - 1) if row.started_at else 0,
        "repairs": ExecutionEvent.objects.filter(execution=row, type=REPAIR).count(),
        "retries": list(row.retries.order_by("created_at", "id").only("pk", "status", "started_at", "created_at")[:MOST_RETRIES]),
        "metadata": json.dumps(row.metadata, indent=2, ensure_ascii=False) if row.metadata else "",
        "tools": ", ".join(row.allowed_tools) if row.allowed_tools else "",
        **{name: Text(shown=text[:MOST_SHOWN], length=len(text)) if text is not None else None for name, text in texts.items()},
    }


def _readable(principal: Principal, execution_id: uuid.UUID) -> Execution:
    """The execution; one that isn't the reader's to see answers as one that isn't there."""
    try:
        return execution_for(principal=principal, execution_id=execution_id)
    except (ExecutionNotFound, AccessDenied) as error:
        raise Http404 from error


def _may_cancel(principal: Principal, row: Execution) -> bool:
    return access.may_cancel(principal, row.agent, submitted_by_id=row.submitted_by_id, submitted_key_id=row.submitted_key_id)


def _steps(row: Execution, *, now: datetime) -> list[Step]:
    """What happened, in order; each span ends where the next begins, the last one goes on."""
    end = "Cancelled" if row.status == Status.CANCELLED else "Failed" if row.status == Status.FAILED else "Succeeded"
    known = [
        ("Submitted", row.created_at, "wait", "in line"),
        ("Got a slot", row.granted_at, "start", "on its way to a worker"),
        ("Started", row.started_at, "run", "at work"),
        (end, row.completed_at, "", ""),
    ]
    seen = [(word, at, kind, span) for word, at, kind, span in known if at is not None]
    first, last = seen[0][1], row.completed_at or now
    whole = max((last - first).total_seconds(), 0.001)

    def place(at: datetime) -> int:
        return min(1000, max(0, round(1000 * (at - first).total_seconds() / whole)))

    following = [at for _, at, _, _ in seen[1:]] + [None]
    return [
        Step(word=word, at=at, kind=kind, span=span, until=until, x=place(at), width=place(until or last) - place(at))
        for (word, at, kind, span), until in zip(seen, following, strict=True)
    ]
