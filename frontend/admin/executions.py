"""Executions in the admin: looked at, cancelled, done again; never changed."""

import json
import uuid
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from backlog.models import TERMINAL, Execution, ExecutionEvent, Status
from core.errors import TrinityError
from runtime.services import cancelling, retries

from .confirming import Line, Question, ask, chosen, is_confirmed, tell
from .filters import OwnAgentFilter, SourceFilter, SubmittedFilter
from .paging import BoundedPaginator
from .rights import ReadOnly, principal_of

#: Characters of a message in the list, of a text on the page of one.
PREVIEW, SHOWN = 100, 10_000
#: Events on the page of one; the newest.
SHOWN_EVENTS = 100
#: Rows that a search for words looks through, the newest; and rows of one action: a page of the list.
SEARCHED, MOST = 50_000, 100
HEAVY = ("message", "response", "system_prompt", "error", "metadata", "allowed_tools")


class ExecutionList(ChangeList):
    """A page of executions without their texts."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Execution]:
        """The beginning of each message, and no more of it."""
        return super().get_queryset(request, exclude_parameters).annotate(preview=Substr("message", 1, PREVIEW + 1)).defer(*HEAVY)


@admin.register(Execution)
class ExecutionAdmin(ReadOnly):
    """Those of an owner's agents; a superuser's all."""

    list_display = ("state", "agent_name", "begins", "by", "submitted", "waited", "ran", "cost")
    list_display_links = ("begins",)
    list_filter = ("status", OwnAgentFilter, SourceFilter, SubmittedFilter)
    list_per_page = MOST
    show_full_result_count = False
    paginator = BoundedPaginator
    change_list_template = "admin/bounded_list.html"
    #: By the one order that an index keeps.
    ordering = ("-created_at", "-id")
    sortable_by = ()
    search_fields = ("id", "message", "agent_name")
    search_help_text = f"An id, an agent's name, or words of a message (of the newest {SEARCHED:,} are looked through)."
    actions = ("cancel", "retry")
    fieldsets: ClassVar = [
        (None, {"fields": ("state", "agent_link", "message_shown", "by", "triggered_by", "priority", "session", "again")}),
        ("Course", {"fields": ("submitted", "waited", "slot_number", "started_at", "ran", "completed_at", "timeout_seconds")}),
        ("Result", {"fields": ("response_shown", "error_shown", "cost", "tokens")}),
        ("Events", {"fields": ("log",)}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Execution]:
        """Those of the user's own living agents; all for a superuser, without a join that would cost the order its index."""
        rows = super().get_queryset(request)
        if request.user.is_superuser:
            return rows
        return rows.filter(agent__owner=request.user.pk, agent__deleted_at=None)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Without texts."""
        return ExecutionList

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Execution], search_term: str) -> tuple[QuerySet[Execution], bool]:
        """By id among all; by words among the newest."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if (execution_id := _id_in(term)) is not None:
            return queryset.filter(pk=execution_id), False
        edge = queryset.values_list("created_at", flat=True)[SEARCHED : SEARCHED + 1].first()
        newest = queryset if edge is None else queryset.filter(created_at__gte=edge)
        return newest.filter(Q(message__icontains=term) | Q(agent_name__istartswith=term)), False

    def view_on_site(self, execution: Execution) -> str:
        """Its own page."""
        return reverse("frontend:execution-detail", args=[execution.pk])

    # -- Columns
    @admin.display(description="status")
    def state(self, row: Execution) -> SafeString:
        """A word; with what it is, where it is more."""
        held = " · holds its slot" if row.slot_token is not None and row.status in TERMINAL else ""
        asked = " · cancelling" if row.cancel_requested_at is not None and row.status == Status.RUNNING else ""
        reason = f" · {row.error_code}" if row.error_code not in {"", row.status} else ""
        return format_html('<span class="state" data-state="{}">{}</span>{}', row.status, row.status, f"{reason}{asked}{held}")

    @admin.display(description="message")
    def begins(self, row: Execution) -> SafeString:
        """How its message begins."""
        text: str = row.preview  # type: ignore[attr-defined]  # annotated by the list
        return format_html('<span class="preview" dir="auto">{}</span>', text[:PREVIEW] + ("…" if len(text) > PREVIEW else ""))

    @admin.display(description="by")
    def by(self, row: Execution) -> str:
        """Whoever submitted it."""
        return row.source_name if row.source_kind == "user" else f"{row.source_kind} {row.source_name}".strip()

    @admin.display(description="submitted")
    def submitted(self, row: Execution) -> str:
        """When."""
        return _moment(row.created_at)

    @admin.display(description="waited")
    def waited(self, row: Execution) -> str:
        """From its place in line to its start, or until now."""
        return _span(row.queued_at, row.started_at or row.completed_at or timezone.now())

    @admin.display(description="ran")
    def ran(self, row: Execution) -> str:
        """From its start to its end, or until now."""
        return "" if row.started_at is None else _span(row.started_at, row.completed_at or timezone.now())

    @admin.display(description="cost")
    def cost(self, row: Execution) -> str:
        """US dollars."""
        return "" if row.cost_usd is None else f"${row.cost_usd:.4f}"

    # -- The page of one
    @admin.display(description="agent")
    def agent_link(self, row: Execution) -> str | SafeString:
        """On to its agent, while there is one."""
        if row.agent.deleted_at is not None:
            return f"{row.agent_name} (deleted)"
        return format_html('<a href="{}">{}</a>', reverse("admin:fleet_agent_change", args=[row.agent_id]), row.agent_name)

    @admin.display(description="message")
    def message_shown(self, row: Execution) -> SafeString:
        """As it was sent."""
        return _text(row.message)

    @admin.display(description="response")
    def response_shown(self, row: Execution) -> str | SafeString:
        """As it came."""
        return "none" if row.response is None else _text(row.response)

    @admin.display(description="error")
    def error_shown(self, row: Execution) -> str | SafeString:
        """Code and words."""
        return _text(f"{row.error_code}: {row.error}" if row.error else row.error_code) if row.error_code else "none"

    @admin.display(description="tokens")
    def tokens(self, row: Execution) -> str:
        """In and out."""
        known = row.input_tokens is not None or row.output_tokens is not None
        return f"{row.input_tokens or 0} in, {row.output_tokens or 0} out" if known else ""

    @admin.display(description="retries")
    def again(self, row: Execution) -> str | SafeString:
        """Which one it does again, and which ones do it again."""
        former = [] if row.retry_of_id is None else [("Retry of", _page(row.retry_of_id), row.retry_of_id)]
        later = [("Retried as", _page(pk), pk) for pk in row.retries.order_by("created_at", "id").values_list("pk", flat=True)[:20]]
        return format_html_join(SafeString("<br>"), '{} <a href="{}">{}</a>', [*former, *later]) or "none"

    @admin.display(description="log")
    def log(self, row: Execution) -> SafeString:
        """Its newest events, in their order."""
        events = list(ExecutionEvent.objects.filter(execution=row).order_by("-seq")[: SHOWN_EVENTS + 1])
        if not events:
            return SafeString("nothing yet")
        left = format_html("<p>The last {} are shown.</p>", SHOWN_EVENTS) if len(events) > SHOWN_EVENTS else SafeString("")
        lines = ((event.seq, _moment(event.at), event.type, _data(event)) for event in reversed(events[:SHOWN_EVENTS]))
        table = format_html_join("", '<tr><td>{}</td><td>{}</td><td>{}</td><td dir="auto">{}</td></tr>', lines)
        head = SafeString('<th scope="col">#</th><th scope="col">at</th><th scope="col">event</th><th scope="col">data</th>')
        return format_html('{}<div class="events"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>', left, head, table)

    # -- Actions
    @admin.action(description="Cancel selected executions")
    def cancel(self, request: HttpRequest, queryset: QuerySet[Execution]) -> HttpResponse | None:
        """Ends those that have not ended, once confirmed."""
        rows = chosen(self, request, queryset, most=MOST)
        if not rows:
            return None
        if not is_confirmed(request):
            text = "What waits is cancelled at once; of what runs the work is stopped. What has ended already stays as it is."
            return ask(self, request, Question(action="cancel", title="Cancel executions", text=text, go="Cancel them", lines=_lines(rows)))
        told = cancelling.cancel_matching(principal=principal_of(request), lookups={"pk__in": [row.pk for row in rows]})
        ended = len(rows) - told.cancelled - told.cancelling
        level = messages.SUCCESS if ended < len(rows) else messages.WARNING
        self.message_user(request, f"{told.cancelled} cancelled, {told.cancelling} being stopped, {ended} had ended already.", level)
        return None

    @admin.action(description="Retry selected executions")
    def retry(self, request: HttpRequest, queryset: QuerySet[Execution]) -> HttpResponse | None:
        """Submits those that have ended anew, once confirmed."""
        rows = chosen(self, request, queryset, most=MOST)
        if not rows:
            return None
        if not is_confirmed(request):
            text = "Each is submitted again, as yours, and waits in line where no slot is free. One that has not ended is passed over."
            return ask(self, request, Question(action="retry", title="Retry executions", text=text, go="Retry them", lines=_lines(rows)))
        self._retry(request, rows)
        return None

    def _retry(self, request: HttpRequest, rows: list[Execution]) -> None:
        made: list[str] = []
        refused: list[tuple[str, str]] = []
        for row in reversed(rows):  # the oldest first, as they were submitted
            try:
                again = retries.retry_execution(principal=principal_of(request), execution_id=row.pk)
            except TrinityError as refusal:
                refused.append((str(row.pk), refusal.detail))
            else:
                made.append(str(again.execution_id))
        tell(self, request, done="Retried", names=made, refused=refused)


def _id_in(term: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(term)
    except ValueError:
        return None


def _lines(rows: list[Execution]) -> list[Line]:
    return [Line(pk=row.pk, name=f"{row.agent_name} · {row.status}", notes=[_begin(row), str(row.pk)]) for row in rows]


def _begin(row: Execution) -> str:
    text: str = getattr(row, "preview", row.message)
    return text[:PREVIEW] + ("…" if len(text) > PREVIEW else "")


def _page(execution_id: uuid.UUID) -> str:
    return reverse("admin:backlog_execution_change", args=[execution_id])


def _text(text: str) -> SafeString:
    cut = format_html("<p>Its first {} of {} characters.</p>", SHOWN, len(text)) if len(text) > SHOWN else SafeString("")
    return format_html('<pre class="text" dir="auto" tabindex="0">{}</pre>{}', text[:SHOWN], cut)


def _data(event: ExecutionEvent) -> str:
    text = json.dumps(event.data, ensure_ascii=False) if event.data else ""
    return text[:300] + ("…" if len(text) > 300 else "")


def _moment(at: datetime) -> str:
    return date_format(localtime(at), "Y-m-d H:i:s")


def _span(start: datetime, end: datetime) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`."""
    seconds = max(timedelta(), end - start).total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
