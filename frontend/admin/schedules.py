"""Schedules in the admin: made, changed, run now and ended by the services that the API calls."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from rest_framework.exceptions import ValidationError as BodyInvalid

from core.errors import InvalidFields, TrinityError
from fleet.principals import Principal
from fleet.selectors import living_agents
from runtime import schedule_selectors as selectors
from runtime.models import Firing, FiringOutcome, Schedule
from runtime.serializers.schedules import ScheduleIn
from runtime.services import schedules

from .filters import OwnAgentFilter
from .rights import Served, principal_of

#: How many of its last due times a schedule's page shows.
SHOWN_FIRINGS = 10


class ScheduleForm(forms.ModelForm):
    """A schedule, new or changed. Valid means done: the service has the last word on what can be."""

    #: Set by the admin that made the class.
    principal: Principal
    saved: Schedule
    cron = forms.CharField(required=False, max_length=100, help_text="Minute, hour, day of month, month, day of week, such as 0 9 * * 1-5.")
    interval_seconds = forms.IntegerField(required=False, help_text="Instead of a cron: every so many seconds from its start.")

    class Meta:
        model = Schedule
        fields = ("agent", *schedules.FIELDS)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "agent" in self.fields:
            agents = living_agents().order_by("name")
            own = agents if self.principal.user.is_superuser else agents.filter(owner=self.principal.user)
            self.fields["agent"] = forms.ModelChoiceField(own)

    def full_clean(self) -> None:
        """Checks, and saves where nothing is wrong."""
        super().full_clean()
        if self.is_bound and not self.errors:
            self._save_by_service()

    def _post_clean(self) -> None:
        # Django's validation of the model would be first, and in words that name a constraint of the database.
        pass

    def _save_by_service(self) -> None:
        sent = {name: self.cleaned_data[name] for name in schedules.FIELDS if name in self.cleaned_data}
        sent["cron"] = sent["cron"] or None
        try:
            values = ScheduleIn.check(sent)
            if self.instance._state.adding:
                name = self.cleaned_data["agent"].name
                self.saved = schedules.create_schedule(principal=self.principal, agent_name=name, values=values)
            else:
                self.saved = schedules.change_schedule(
                    principal=self.principal, agent_name=self.instance.agent.name, schedule_id=self.instance.pk, changes=values
                )
        except BodyInvalid as error:
            for name, details in error.detail.items():  # type: ignore[union-attr]  # of an object: a dict
                self.add_error(name, [str(detail) for detail in details])
        except InvalidFields as error:
            self.add_error(error.data["errors"][0]["pointer"].removeprefix("/"), error.detail)
        except TrinityError as error:
            self.add_error(None, ValidationError(error.detail))


class FiredList(ChangeList):
    """A page of schedules, each row with its `last_firing`; one read for all of them."""

    def get_results(self, request: HttpRequest) -> None:
        """The rows of the page."""
        super().get_results(request)
        last = selectors.last_firings(list(self.result_list))
        for row in self.result_list:
            row.last_firing = last.get(row.pk)


@admin.register(Schedule)
class ScheduleAdmin(Served):
    """The schedules of an owner's agents, a superuser's all."""

    list_display = ("name", "agent", "when", "enabled", "next_due_at", "last", "made_by")
    list_filter = ("enabled", OwnAgentFilter)
    list_select_related = ("agent", "made_by")
    search_fields = ("name", "message", "agent__name")
    actions = ("run_now",)
    readonly_fields = ("maker", "created_at", "next_due_at", "what_became")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """Those of the user's own living agents; of all for a superuser."""
        found = super().get_queryset(request).filter(agent__deleted_at=None).defer("agent__runtime")
        return found if request.user.is_superuser else found.filter(agent__owner=request.user.pk)

    def trail(self, obj: Schedule) -> str:
        """What was changed of its agent."""
        return f"agent={obj.agent_id}"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """With what became of them."""
        return FiredList

    def get_fields(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """An agent is chosen once."""
        return ("agent", *schedules.FIELDS, *(self.readonly_fields if obj else ()))

    def get_readonly_fields(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """As above."""
        return (*self.readonly_fields, *(("agent",) if obj else ()))

    @admin.display(description="made by")
    def maker(self, schedule: Schedule) -> str:
        """A name; Django would link it to a page that is for superusers alone."""
        return "" if schedule.made_by is None else schedule.made_by.get_username()

    @admin.display(description="when")
    def when(self, schedule: Schedule) -> str:
        """`0 9 * * 1-5 Europe/Berlin`, `every 60 s`."""
        return f"{schedule.cron} {schedule.timezone}" if schedule.cron else f"every {schedule.interval_seconds} s"

    @admin.display(description="last firing")
    def last(self, schedule: Schedule) -> str:
        """Its outcome."""
        firing: Firing | None = getattr(schedule, "last_firing", None)
        return "" if firing is None else _told(firing)

    @admin.display(description="last firings")
    def what_became(self, schedule: Schedule) -> SafeString:
        """The last due times with their outcomes."""
        lines = [f"{firing.due_at:%Y-%m-%d %H:%M:%S} UTC  {_told(firing)}" for firing in selectors.firings_of(schedule)[:SHOWN_FIRINGS]]
        return format_html("<pre>{}</pre>", "\n".join(lines) or "never yet")

    def get_form(self, request: HttpRequest, obj: Schedule | None = None, change: bool = False, **kwargs: Any) -> type[forms.ModelForm]:
        """The form knows who asks."""
        form = super().get_form(request, obj, change, **(kwargs | {"form": ScheduleForm}))
        return type(form.__name__, (form,), {"principal": principal_of(request)})

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Schedule:
        """The row as the service made it."""
        saved: Schedule = form.saved
        return saved

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """It is saved already."""

    def has_delete_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """As for the look: what it has made stays."""
        return self.admin_site.has_permission(request)

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        """Ends it, by the service."""
        try:
            schedules.delete_schedule(principal=principal_of(request), agent_name=obj.agent.name, schedule_id=obj.pk)
        except TrinityError as refusal:
            self.refuse(request, refusal)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """As for one."""
        for schedule in queryset:
            self.delete_model(request, schedule)

    @admin.action(description="Run selected schedules now")
    def run_now(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """Submits the task of each; when they come due stays as it is."""
        for schedule in queryset:
            try:
                made = schedules.run_schedule(principal=principal_of(request), agent_name=schedule.agent.name, schedule_id=schedule.pk)
            except TrinityError as refusal:
                self.refuse(request, refusal)
            else:
                where = reverse("runtime:execution-detail", args=[made.execution_id])
                self.message_user(request, format_html('{}: <a href="{}">{}</a>', schedule.name, where, made.execution_id), messages.INFO)


def _told(firing: Firing) -> str:
    reason = f" ({firing.reason})" if firing.reason else ""
    skipped = f", {firing.skipped} before it went by" if firing.skipped else ""
    execution = f" {firing.execution_id}" if firing.outcome == FiringOutcome.SUBMITTED else ""
    return f"{firing.outcome}{reason}{execution}{skipped}"
