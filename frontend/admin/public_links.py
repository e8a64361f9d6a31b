"""Public links in the admin: made and shown once, revoked, never changed."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from core.errors import TrinityError
from fleet import public_links
from fleet.models import Agent, PublicLink
from fleet.principals import Principal
from fleet.selectors import living_agents

from .confirming import Line, Question, ask, chosen, is_confirmed, tell
from .filters import OwnAgentFilter
from .rights import Served, principal_of

NAMES = ("name", "agent")


class NewLinkForm(forms.ModelForm):
    """A new link to one of the user's agents. Valid means made."""

    #: Set by the admin that made the class.
    principal: Principal
    created: public_links.NewLink

    class Meta:
        model = PublicLink
        fields = NAMES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents, user = living_agents().order_by("name"), self.principal.user
        self.fields["agent"] = forms.ModelChoiceField(agents if user.is_superuser else agents.filter(owner=user))

    def full_clean(self) -> None:
        """Checks, and makes the link where nothing is wrong."""
        super().full_clean()
        if self.is_bound and not self.errors:
            self._create(name=self.cleaned_data["name"], agent=self.cleaned_data["agent"])

    def _post_clean(self) -> None:
        # The service makes the row.
        pass

    def _create(self, *, name: str, agent: Agent) -> None:
        try:
            self.created = public_links.create_link(principal=self.principal, agent=agent, name=name)
        except TrinityError as refusal:
            self.add_error(None, refusal.detail)


@admin.register(PublicLink)
class PublicLinkAdmin(Served):
    """The links to a user's agents, a superuser's all."""

    list_display = ("name", "visible_prefix", "agent", "created_by", "created_at", "last_used_at", "revoked_at")
    list_display_links = None
    list_filter = (OwnAgentFilter,)
    list_select_related = ("agent", "created_by")
    search_fields = ("name", "prefix", "agent__name")
    ordering = ("-created_at", "-id")
    actions = ("revoke",)
    fields = NAMES

    def get_queryset(self, request: HttpRequest) -> QuerySet[PublicLink]:
        """Those of the user's living agents; all for a superuser."""
        links = super().get_queryset(request).filter(agent__deleted_at=None)
        return links if request.user.is_superuser else links.filter(agent__owner=request.user.pk)

    def has_change_permission(self, request: HttpRequest, obj: PublicLink | None = None) -> bool:
        """A link is what it was made."""
        return False

    @admin.display(description="link")
    def visible_prefix(self, link: PublicLink) -> str:
        """The part of the token that may be seen."""
        return f"{link.prefix}…"

    def get_form(self, request: HttpRequest, obj: PublicLink | None = None, change: bool = False, **kwargs: Any) -> type[forms.ModelForm]:
        """The form knows who makes the link."""
        form = super().get_form(request, obj, change, **(kwargs if obj else kwargs | {"form": NewLinkForm}))
        return type(form.__name__, (form,), {"principal": principal_of(request)})

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> PublicLink:
        """The row as the service made it."""
        request.new_link = form.created.token  # type: ignore[attr-defined]  # for the answer to this request alone
        return form.created.row

    def save_model(self, request: HttpRequest, obj: PublicLink, form: Any, change: bool) -> None:
        """It is saved already."""

    def response_add(self, request: HttpRequest, obj: PublicLink, post_url_continue: str | None = None) -> HttpResponse:
        """The token, this once: on the page itself, for a message would lie in a cookie until it is read."""
        token = request.new_link  # type: ignore[attr-defined]
        context = {**self.admin_site.each_context(request), "title": "Public link made", "token": token, "row": obj, "opts": self.opts}
        return TemplateResponse(request, "admin/public_link_made.html", context, headers={"Cache-Control": "no-store"})

    @admin.action(description="Revoke selected links")
    def revoke(self, request: HttpRequest, links: QuerySet[PublicLink]) -> HttpResponse | None:
        """Ends the links for good, once the user has confirmed it."""
        rows = chosen(self, request, links)
        if rows and not is_confirmed(request):
            lines = [Line(pk=row.pk, name=row.name, notes=[f"{row.prefix}… to {row.agent.name}"]) for row in rows]
            text = "A revoked link leads nowhere from then on, and can't be brought back."
            return ask(self, request, Question(action="revoke", title="Revoke public links", text=text, go="Revoke", lines=lines))
        living = [link for link in rows if link.revoked_at is None]
        for link in living:
            public_links.revoke_link(principal=principal_of(request), agent=link.agent, link_id=link.pk)
        tell(self, request, done="Revoked", names=[link.name for link in living])
        return None
