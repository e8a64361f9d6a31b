"""Forms of agents: checked by the API's own rules, in its own sentences."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from rest_framework.exceptions import ValidationError as BodyInvalid

from core.errors import InvalidFields, TrinityError
from fleet import limits, services
from fleet.errors import PreconditionFailed
from fleet.models import Agent
from fleet.principals import Principal
from fleet.serializers import AgentIn, settings_in

EXAMPLE = '{"kind": "http", "url": "http://127.0.0.1:9000"}'


def version_field(agent: Agent) -> str:
    """The hidden field of a row in the list: which version of its settings its reader saw."""
    return f"version-{agent.pk}"


class LimitsForm(forms.ModelForm):
    """Capacity settings, written over nobody else's change."""

    #: Set by the admin that made the class: one look for all rows of a list.
    ceiling: int
    seen_version = forms.IntegerField(widget=forms.HiddenInput)

    class Meta:
        model = Agent
        fields = limits.NAMES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (low, high) in limits.bounds(self.ceiling).items():
            if name in self.fields:
                # Changed is what differs from what was seen, not from what somebody else made of it meanwhile.
                self.fields[name] = forms.IntegerField(show_hidden_initial=True, widget=forms.NumberInput({"min": low, "max": high}))
        if "seen_version" in self.fields:
            self.fields["seen_version"].initial = self.instance.settings_version

    def changes(self) -> dict[str, int]:
        """The settings that were changed."""
        return {name: self.cleaned_data[name] for name in limits.NAMES if name in self.changed_data and name in self.cleaned_data}

    def version_seen(self) -> int | None:
        """The version that the reader saw."""
        return self.cleaned_data.get("seen_version")

    def clean(self) -> dict[str, Any]:
        """Refuses what the service would refuse; values that stand already are not looked at: the ceiling may be lower by now."""
        cleaned = super().clean() or self.cleaned_data
        try:
            limits.check(self.changes(), ceiling=self.ceiling)
        except InvalidFields as error:
            for one in error.data["errors"]:
                self.add_error(one["pointer"].removeprefix("/"), one["detail"])
        if self.changes() and self.version_seen() != Agent.objects.values_list("settings_version", flat=True).get(pk=self.instance.pk):
            raise ValidationError(f"{PreconditionFailed().detail}. Load the page again.")
        return cleaned


class RowForm(LimitsForm):
    """The limit in the list."""

    seen_version = None  # type: ignore[assignment]  # the list renders no hidden fields but its own: see `version_field`

    class Meta:
        model = Agent
        fields = ("max_parallel_tasks",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """The number is named: its column's head is no label."""
        super().__init__(*args, **kwargs)
        self.fields["max_parallel_tasks"].widget.attrs["aria-label"] = f"Limit of {self.instance.name}"

    def version_seen(self) -> int | None:
        """The version that the reader saw."""
        text = self.data.get(version_field(self.instance), "")
        return int(text) if text.isascii() and text.isdecimal() else None


class NewAgentForm(forms.ModelForm):
    """A new agent of the user's own. Valid means made: the service has the last word on what can be."""

    #: Set by the admin that made the class.
    principal: Principal
    ceiling: int
    created: Agent
    runtime = forms.JSONField(
        initial=dict,
        widget=forms.Textarea({"rows": 8, "cols": 80, "spellcheck": "false"}),
        help_text=f"How it is reached, for example {EXAMPLE}. Header and environment values are kept encrypted and never shown again.",
    )

    class Meta:
        model = Agent
        fields = ("name", "description", *limits.NAMES)

    def full_clean(self) -> None:
        """Checks, and makes the agent where nothing is wrong."""
        super().full_clean()
        if self.is_bound and not self.errors:
            self._create()

    def _post_clean(self) -> None:
        # Django's validation of the model would be first, and in words that name a constraint of the database.
        pass

    def _create(self) -> None:
        try:
            body = AgentIn.check(self.cleaned_data, ceiling=self.ceiling)
            self.created = services.create_agent(
                principal=self.principal,
                name=body["name"],
                description=body["description"],
                runtime=body["runtime"],
                settings=settings_in(body),
            )
        except BodyInvalid as error:
            for name, detail in error.detail.items():  # type: ignore[union-attr]  # of an object: a dict
                self.add_error(name if name in self.fields else None, list(_sentences(detail)))
        except InvalidFields as error:
            self.add_error(error.data["errors"][0]["pointer"].split("/")[1], error.detail)
        except TrinityError as error:
            self.add_error(None, error.detail)


def _sentences(detail: Any) -> list[str]:
    """All sentences of a nested error."""
    if isinstance(detail, dict):
        return [sentence for inner in detail.values() for sentence in _sentences(inner)]
    if isinstance(detail, list):
        return [sentence for inner in detail for sentence in _sentences(inner)]
    return [str(detail)]
