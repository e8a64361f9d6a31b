"""Shares in the admin: owners let others use their agents, and take that back, by the services that the API calls."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from core.errors import InvalidFields, TrinityError
from fleet import shares
from fleet.models import Agent, Share
from fleet.principals import Principal

from .filters import OwnAgentFilter, own_agents
from .rights import Served, principal_of


class NewShareForm(forms.ModelForm):
    """One of the user's agents, and a person's name. Valid means shared."""

    #: Set by the admin that made the class.
    principal: Principal
    agents: QuerySet[Agent]
    created: Share
    username = forms.CharField(max_length=150, label="User name", help_text="Of an active user: they may read the agent and submit to it.")

    class Meta:
        model = Share
        fields = ("agent",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"] = forms.ModelChoiceField(self.agents.all())

    def full_clean(self) -> None:
        """Checks, and shares where nothing is wrong."""
        super().full_clean()
        if self.is_bound and not self.errors:
            self._share(agent=self.cleaned_data["agent"], username=self.cleaned_data["username"])

    def _post_clean(self) -> None:
        # The service makes the row.
        pass

    def _share(self, *, agent: Agent, username: str) -> None:
        try:
            self.created, is_new = shares.share_agent(principal=self.principal, agent=agent, username=username)
        except InvalidFields as error:
            self.add_error("username", error.detail)
        except TrinityError as refusal:
            self.add_error(None, refusal.detail)
        else:
            if not is_new:
                self.add_error("username", "The agent is shared with them already")


@admin.register(Share)
class ShareAdmin(Served):
    """With whom a user's agents are shared; a superuser's all."""

    list_display = ("agent", "user", "created_at")
    list_display_links = None
    list_filter = (OwnAgentFilter,)
    list_select_related = ("agent", "user")
    search_fields = ("agent__name", "user__username")
    ordering = ("agent__name", "user__username")
    fields = ("agent", "username")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Share]:
        """Those of the user's own living agents; all for a superuser."""
        found = super().get_queryset(request).filter(agent__deleted_at=None).defer("agent__runtime")
        return found if request.user.is_superuser else found.filter(agent__owner=request.user.pk)

    def has_change_permission(self, request: HttpRequest, obj: Share | None = None) -> bool:
        """It is there or it isn't."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Share | None = None) -> bool:
        """As for the look."""
        return self.admin_site.has_permission(request)

    def get_form(self, request: HttpRequest, obj: Share | None = None, change: bool = False, **kwargs: Any) -> type[forms.ModelForm]:
        """The form knows who shares."""
        if obj is not None:
            return super().get_form(request, obj, change, **(kwargs | {"fields": ("agent",)}))
        form = super().get_form(request, obj, change, **(kwargs | {"form": NewShareForm}))
        return type(form.__name__, (form,), {"principal": principal_of(request), "agents": own_agents(request)})

    def get_fields(self, request: HttpRequest, obj: Share | None = None) -> Any:
        """Made by a name, looked at as it is."""
        return ("agent", "user", "created_at") if obj else self.fields

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Share:
        """The row as the service made it."""
        created: Share = form.created
        return created

    def save_model(self, request: HttpRequest, obj: Share, form: Any, change: bool) -> None:
        """It is saved already."""

    def delete_model(self, request: HttpRequest, obj: Share) -> None:
        """Takes it back, by the service."""
        try:
            shares.withdraw_share(principal=principal_of(request), agent=obj.agent, username=obj.user.get_username())
        except TrinityError as refusal:
            self.refuse(request, refusal)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Share]) -> None:
        """As for one."""
        for share in queryset:
            self.delete_model(request, share)
