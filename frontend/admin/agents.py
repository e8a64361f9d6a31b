"""Agents in the admin: a live meter, and limits to change in the list or the form."""

import json
from functools import partial
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin import RelatedOnlyFieldListFilter
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import QuerySet
from django.forms import ModelForm, Script
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.timezone import localtime

from capacity.selectors import Meter
from core.errors import TrinityError
from fleet.limits import NAMES
from fleet.models import Agent
from fleet.runtimes import shown
from fleet.selectors import ceiling, living_agents
from runtime.services import controls

from ..load import load_of
from .agent_actions import AgentActions
from .agent_forms import LimitsForm, NewAgentForm, RowForm, version_field
from .filters import LoadFilter
from .rights import Tool, principal_of

#: Users named on the form as those with whom it is shared.
NAMED = 20


class MeteredList(ChangeList):
    """A page of agents, each row with its `meter`; one read for all of them."""

    def get_results(self, request: HttpRequest) -> None:
        """The rows of the page."""
        super().get_results(request)
        # Read once, and kept by the queryset: the list's forms are made from the same rows.
        rows = list(self.result_list)
        load = load_of(rows)
        for row in self.result_list:
            row.meter = load.meters.get(row.name)


@admin.register(Agent)
class AgentAdmin(AgentActions):
    """An owner's own agents, a superuser's all."""

    list_display = ("name", "live", "used", "waiting", "state", "owner", "max_parallel_tasks")
    list_editable = ("max_parallel_tasks",)
    list_select_related = ("owner",)
    list_per_page = 100
    show_full_result_count = False
    search_fields = ("name", "description", "owner__username")
    search_help_text = "A name, a word of the description, or an owner."

    class Media:
        js: ClassVar = [Script("trinity/pages/admin.js", type="module")]

    # -- What is shown
    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        """The user's own living agents; all for a superuser."""
        agents = living_agents().select_related("owner", "changed_by").order_by("name")
        return agents if request.user.is_superuser else agents.filter(owner=request.user.pk)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """With meters."""
        return MeteredList

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Owners are all of one owner's rows."""
        own = ("paused", LoadFilter)
        return (*own, ("owner", RelatedOnlyFieldListFilter)) if request.user.is_superuser else own

    def view_on_site(self, agent: Agent) -> str:
        """Its own page."""
        return reverse("frontend:agent-detail", args=[agent.name])

    def trail(self, obj: Agent) -> str:
        """What was changed of it."""
        return f"agent={obj.pk}"

    def tools(self, obj: Agent) -> list[Tool]:
        """What belongs to it."""
        models = (("Executions", "backlog_execution"), ("Shares", "fleet_share"))
        return [Tool(text=text, url=f"{reverse(f'admin:{model}_changelist')}?agent={obj.pk}") for text, model in models]

    @admin.display(description="state", ordering="paused")
    def state(self, agent: Agent) -> SafeString:
        """`Paused`, or nothing; a pause of the whole fleet is one too."""
        meter = _meter_of(agent)
        text = "Paused" if agent.paused else "Fleet paused" if meter is not None and meter.paused else ""
        return format_html('<span class="state" data-state="paused" data-paused="{}">{}</span>', agent.name, text)

    @admin.display(description="paused")
    def paused_shown(self, agent: Agent) -> str:
        """A word."""
        return "Paused: what runs goes on, and nothing new starts" if agent.paused else "no"

    @admin.display(description="shared with")
    def shared_with(self, agent: Agent) -> SafeString:
        """The first few by name."""
        names = list(agent.shares.order_by("user__username").values_list("user__username", flat=True)[: NAMED + 1])
        told = ", ".join(names[:NAMED]) + (" and others" if len(names) > NAMED else "")
        new = f"{reverse('admin:fleet_share_add')}?agent={agent.pk}"
        return format_html('{} <a href="{}">Share it</a>', told or "nobody.", new)

    @admin.display(description="meter")
    def live(self, agent: Agent) -> SafeString:
        """The meter, and the version of the settings that its reader sees."""
        seen = format_html('<input type="hidden" name="{}" value="{}">', version_field(agent), agent.settings_version)
        return mark_safe(_meter(agent, height=28, width=10) + seen)  # noqa: S308 - both parts were escaped where they were made

    @admin.display(description="used / limit")
    def used(self, agent: Agent) -> SafeString:
        """`3/5`."""
        meter = _meter_of(agent)
        text = "unknown" if meter is None or meter.active is None else f"{meter.active}/{meter.max}"
        return format_html('<span data-used="{}">{}</span>', agent.name, text)

    @admin.display(description="waiting")
    def waiting(self, agent: Agent) -> SafeString:
        """How many wait."""
        meter = _meter_of(agent)
        return format_html('<span data-waiting="{}">{}</span>', agent.name, "" if meter is None else meter.queued)

    @admin.display(description="slots in use")
    def big_meter(self, agent: Agent) -> SafeString:
        """The meter on the agent's own page."""
        agent.meter = load_of([agent]).meters.get(agent.name)  # type: ignore[attr-defined]  # as on the rows of the list
        return _meter(agent, height=48, width=12, bare=False)

    @admin.display(description="owner")
    def owned_by(self, agent: Agent) -> str:
        """A name; Django would link it to a page that is for superusers alone."""
        return agent.owner.get_username()

    @admin.display(description="last change of settings")
    def changed(self, agent: Agent) -> str:
        """When, and by whom."""
        if agent.changed_at is None:
            return "none yet"
        by = "" if agent.changed_by is None else f" by {agent.changed_by.get_username()}"
        return date_format(localtime(agent.changed_at), "DATETIME_FORMAT") + by

    @admin.display(description="temporary limit")
    def override(self, agent: Agent) -> str:
        """Until when the limit holds, and which one returns then."""
        if agent.override_until is None:
            return "no"
        until = date_format(localtime(agent.override_until), "DATETIME_FORMAT")
        return f"until {until}, then {agent.base_max_parallel_tasks} again; a limit typed here is the lasting one"

    @admin.display(description="runtime")
    def runtime_shown(self, agent: Agent) -> SafeString:
        """How it is reached, secrets left out."""
        return format_html("<pre>{}</pre>", json.dumps(shown(agent), indent=2, ensure_ascii=False))

    def get_fieldsets(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        """A new agent is described, an old one steered."""
        if obj is None:
            return [(None, {"fields": ["name", "description", "runtime", *NAMES]})]
        return [
            (None, {"fields": ["name", "owned_by", "description", "big_meter", "paused_shown", "shared_with"]}),
            ("Capacity", {"fields": [*NAMES, "override", "changed", "seen_version"]}),
            ("Runtime", {"fields": ["runtime_shown"]}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Agent | None = None) -> tuple[str, ...]:
        """Of an old agent all but the limits."""
        if obj is None:
            return ()
        return ("name", "owned_by", "description", "big_meter", "paused_shown", "shared_with", "override", "changed", "runtime_shown")

    # -- What is changed
    def get_form(self, request: HttpRequest, obj: Agent | None = None, change: bool = False, **kwargs: Any) -> type[ModelForm]:
        """The form of a new agent knows who makes it."""
        form = super().get_form(request, obj, change, **(kwargs | {"form": LimitsForm if obj else NewAgentForm}))
        return type(form.__name__, (form,), {"principal": principal_of(request), "ceiling": ceiling()})

    def get_changelist_form(self, request: HttpRequest, **kwargs: Any) -> type[ModelForm]:
        """The limit of one row."""
        return type("LimitForm", (RowForm,), {"ceiling": ceiling()})

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Agent:
        """The row as the service made it, or the one that is about to change."""
        return form.instance if change else form.created

    def save_model(self, request: HttpRequest, obj: Agent, form: Any, change: bool) -> None:
        """Sets the limits; in the list after its transaction, for a raise starts work at once."""
        if change and form.changes():
            transaction.on_commit(partial(self._set_limits, request, form.instance.name, form.changes(), form.version_seen()))

    def _set_limits(self, request: HttpRequest, name: str, changes: dict[str, int], seen: int | None) -> None:
        try:
            controls.set_limit(principal=principal_of(request), name=name, changes=changes, expected_version=seen)
        except TrinityError as refusal:
            self.refuse(request, refusal)


def _meter_of(agent: Agent) -> Meter | None:
    return getattr(agent, "meter", None)


def _meter(agent: Agent, *, height: int, width: int, bare: bool = True) -> SafeString:
    meter = _meter_of(agent)
    if meter is None:
        return SafeString("")
    return render_to_string("frontend/_meter.html", {"name": agent.name, "meter": meter, "height": height, "width": width, "bare": bare})
