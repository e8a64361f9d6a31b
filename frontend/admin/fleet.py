"""Fleet-wide settings in the admin."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from core.errors import TrinityError
from fleet.errors import PreconditionFailed
from fleet.first_values import MAX_CAP, MAX_CEILING
from fleet.models import FleetSettings, OnFull
from runtime.services import controls

from .rights import SuperusersOnly, principal_of

CEILING = "max_parallel_tasks_ceiling"
CAP = ("max_concurrent_tasks", "on_full")


class FleetForm(forms.ModelForm):
    """The ceiling and the cap, written over nobody else's change."""

    # Changed is what differs from what was seen, not from what somebody else made of it meanwhile.
    max_parallel_tasks_ceiling = forms.IntegerField(
        label="Ceiling",
        min_value=1,
        max_value=MAX_CEILING,
        show_hidden_initial=True,
        help_text="No agent runs more tasks at once; stored limits above it stay as they are.",
    )
    max_concurrent_tasks = forms.IntegerField(
        label="Cap",
        required=False,
        min_value=1,
        max_value=MAX_CAP,
        show_hidden_initial=True,
        help_text="How many tasks all agents together run at once; empty: any number. A lower one stops nothing.",
    )
    on_full = forms.ChoiceField(
        label="At the cap",
        choices=OnFull.choices,
        show_hidden_initial=True,
        help_text="Whether tasks that could wait do so, or are refused.",
    )
    seen_ceiling = forms.IntegerField(widget=forms.HiddenInput)
    seen_cap = forms.IntegerField(widget=forms.HiddenInput)

    class Meta:
        model = FleetSettings
        fields = (CEILING, *CAP)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["seen_ceiling"].initial = self.instance.ceiling_version
        self.fields["seen_cap"].initial = self.instance.cap_version

    def clean(self) -> dict[str, Any]:
        """Refuses what somebody else has changed since it was seen."""
        cleaned = super().clean() or self.cleaned_data
        now = FleetSettings.objects.get(pk=self.instance.pk)
        stale = (self.changes_ceiling() and cleaned.get("seen_ceiling") != now.ceiling_version) or (
            self.changes_cap() and cleaned.get("seen_cap") != now.cap_version
        )
        if stale:
            raise ValidationError(f"{PreconditionFailed().detail}. Load the page again.")
        return cleaned

    def changes_ceiling(self) -> bool:
        """Whether another ceiling was typed."""
        return CEILING in self.changed_data

    def changes_cap(self) -> bool:
        """Whether another cap was typed, or something else is to become of tasks at it."""
        return not set(CAP).isdisjoint(self.changed_data)


@admin.register(FleetSettings)
class FleetSettingsAdmin(SuperusersOnly):
    """The one row."""

    form = FleetForm
    fields = (CEILING, *CAP, "seen_ceiling", "seen_cap")
    list_display = ("__str__", CEILING, *CAP)
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """There is one already."""
        return False

    def trail(self, obj: FleetSettings) -> str:
        """What was changed of the fleet."""
        return "agent=fleet"

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> FleetSettings:
        """The row; the services write it."""
        return form.instance

    def save_model(self, request: HttpRequest, obj: FleetSettings, form: Any, change: bool) -> None:
        """Sets what was changed; a raise starts what waits."""
        try:
            self._set(request, form)
        except TrinityError as refusal:
            self.refuse(request, refusal)

    def _set(self, request: HttpRequest, form: FleetForm) -> None:
        principal, typed = principal_of(request), form.cleaned_data
        if form.changes_ceiling():
            controls.set_ceiling(principal=principal, value=typed[CEILING], expected_version=typed["seen_ceiling"])
        if form.changes_cap():
            controls.set_cap(
                principal=principal,
                value=typed["max_concurrent_tasks"],
                on_full=typed["on_full"],
                expected_version=typed["seen_cap"],
            )
