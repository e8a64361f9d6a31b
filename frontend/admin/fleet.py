"""Fleet-wide settings in the admin."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from core.errors import TrinityError
from fleet.first_values import MAX_CEILING
from fleet.models import FleetSettings
from runtime.services import controls

from .rights import SuperusersOnly, principal_of


class CeilingForm(forms.ModelForm):
    """The ceiling."""

    max_parallel_tasks_ceiling = forms.IntegerField(
        label="Ceiling",
        min_value=1,
        max_value=MAX_CEILING,
        help_text="No agent runs more tasks at once; stored limits above it stay as they are.",
    )

    class Meta:
        model = FleetSettings
        fields = ("max_parallel_tasks_ceiling",)


@admin.register(FleetSettings)
class FleetSettingsAdmin(SuperusersOnly):
    """The one row."""

    form = CeilingForm
    list_display = ("__str__", "max_parallel_tasks_ceiling")
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """There is one already."""
        return False

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> FleetSettings:
        """The row; the service writes it."""
        return form.instance

    def save_model(self, request: HttpRequest, obj: FleetSettings, form: Any, change: bool) -> None:
        """Sets the ceiling; a raise starts what waits."""
        if "max_parallel_tasks_ceiling" not in form.changed_data:
            return
        try:
            controls.set_ceiling(principal=principal_of(request), value=form.cleaned_data["max_parallel_tasks_ceiling"])
        except TrinityError as refusal:
            self.refuse(request, refusal)
