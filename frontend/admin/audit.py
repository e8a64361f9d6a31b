"""The audit trail in the admin: who changed what, when, from what and to what. Only ever read."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from fleet.models import AuditEntry

from .filters import AboutFilter, ChangedFilter
from .paging import BoundedPaginator
from .rights import ReadOnly

#: Characters of a value in the list.
CLIPPED = 160


class ActionFilter(admin.SimpleListFilter):
    """By what was done, of what the reader may see."""

    title = "change"
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Every word there is."""
        found = model_admin.get_queryset(request).order_by("action").values_list("action", flat=True).distinct()
        return [(action, _words(action)) for action in found]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditEntry]) -> QuerySet[AuditEntry] | None:
        """Its rows."""
        return None if self.value() is None else queryset.filter(action=self.value())


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    """The entries of an owner's agents; a superuser's all, the fleet's among them."""

    list_display = ("when", "who", "done", "about", "change")
    list_filter = (ActionFilter, AboutFilter, ChangedFilter)
    list_select_related = ("agent",)
    list_per_page = 100
    show_full_result_count = False
    paginator = BoundedPaginator
    change_list_template = "admin/bounded_list.html"
    ordering = ("-at", "-id")
    sortable_by = ()
    search_fields = ("actor_name", "action", "agent__name")
    search_help_text = "A person, a word of what was done, or an agent's name."
    fields = ("when", "who", "done", "about", "from_value", "to_value")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEntry]:
        """Those of the user's own living agents; all for a superuser."""
        entries = super().get_queryset(request).defer("agent__runtime")
        return entries if request.user.is_superuser else entries.filter(agent__owner=request.user.pk, agent__deleted_at=None)

    @admin.display(description="when")
    def when(self, entry: AuditEntry) -> str:
        """To the second."""
        return date_format(localtime(entry.at), "Y-m-d H:i:s")

    @admin.display(description="who")
    def who(self, entry: AuditEntry) -> str:
        """By the name of then."""
        return entry.actor_name

    @admin.display(description="change")
    def done(self, entry: AuditEntry) -> str:
        """`max parallel tasks`, `queue cleared`."""
        return _words(entry.action)

    @admin.display(description="agent")
    def about(self, entry: AuditEntry) -> str | SafeString:
        """Its agent, or the fleet."""
        if entry.agent is None:
            return "the fleet"
        if entry.agent.deleted_at is not None:
            return f"{entry.agent.name} (deleted)"
        return format_html('<a href="{}">{}</a>', reverse("admin:fleet_agent_change", args=[entry.agent_id]), entry.agent.name)

    @admin.display(description="old → new")
    def change(self, entry: AuditEntry) -> SafeString:
        """`3 → 5`; what was made or ended has one side only."""
        before, after = (_value(side)[:CLIPPED] for side in (entry.before, entry.after))
        return format_html('<span class="preview" dir="auto">{} → {}</span>', before, after)

    @admin.display(description="old")
    def from_value(self, entry: AuditEntry) -> SafeString:
        """In full."""
        return format_html('<pre class="text" dir="auto">{}</pre>', _value(entry.before, indent=2))

    @admin.display(description="new")
    def to_value(self, entry: AuditEntry) -> SafeString:
        """In full."""
        return format_html('<pre class="text" dir="auto">{}</pre>', _value(entry.after, indent=2))


def _words(action: str) -> str:
    return action.replace("_", " ")


def _value(value: Any, *, indent: int | None = None) -> str:
    match value:
        case None | "":
            return "none"
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case _:
            return json.dumps(value, indent=indent, ensure_ascii=False)
