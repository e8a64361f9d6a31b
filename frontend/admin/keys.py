"""API keys in the admin: made and shown once, revoked, never changed."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from core.errors import TrinityError
from fleet import services
from fleet.models import Agent, ApiKey, KeyScope
from fleet.principals import Principal
from fleet.selectors import living_agents

from .confirming import Line, Question, ask, chosen, is_confirmed, tell
from .rights import Served, principal_of

NAMES = ("name", "scope", "agent", "expires_at")


class NewKeyForm(forms.ModelForm):
    """A new key of the user's own. Valid means made."""

    #: Set by the admin that made the class.
    principal: Principal
    created: services.NewKey

    class Meta:
        model = ApiKey
        fields = NAMES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents = living_agents().order_by("name")
        user = self.principal.user
        self.fields["agent"] = forms.ModelChoiceField(
            agents if user.is_superuser else agents.filter(owner=user),
            required=False,
            help_text="For a key of scope agent: whom it speaks for.",
        )
        if not user.is_superuser:
            self.fields["scope"].choices = [choice for choice in KeyScope.choices if choice[0] != KeyScope.SYSTEM]  # type: ignore[attr-defined]

    def full_clean(self) -> None:
        """Checks, and makes the key where nothing is wrong."""
        super().full_clean()
        if self.is_bound and not self.errors:
            self._create(**{name: self.cleaned_data[name] for name in NAMES})

    def _post_clean(self) -> None:
        # Django's validation of the model would be first, and in words that name a constraint of the database.
        pass

    def _create(self, *, name: str, scope: str, agent: Agent | None, expires_at: Any) -> None:
        try:
            self.created = services.create_key(
                owner=self.principal.user, name=name, scope=scope, agent=agent, expires_at=expires_at, principal=self.principal
            )
        except TrinityError as refusal:
            self.add_error(None, refusal.detail)


@admin.register(ApiKey)
class ApiKeyAdmin(Served):
    """A user's own keys, a superuser's all."""

    list_display = ("name", "visible_prefix", "scope", "agent", "owner", "created_at", "last_used_at", "expires_at", "revoked_at")
    list_display_links = None
    list_filter = ("scope",)
    list_select_related = ("agent", "owner")
    search_fields = ("name", "prefix")
    ordering = ("-created_at", "-id")
    actions = ("revoke",)
    fields = NAMES

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        """The user's own keys; all for a superuser."""
        keys = super().get_queryset(request)
        return keys if request.user.is_superuser else keys.filter(owner=request.user.pk)

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """A key is what it was made."""
        return False

    @admin.display(description="key")
    def visible_prefix(self, key: ApiKey) -> str:
        """The part of the key that may be seen."""
        return f"{key.prefix}…"

    def get_form(self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **kwargs: Any) -> type[forms.ModelForm]:
        """The form knows who makes the key."""
        form = super().get_form(request, obj, change, **(kwargs if obj else kwargs | {"form": NewKeyForm}))
        return type(form.__name__, (form,), {"principal": principal_of(request)})

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> ApiKey:
        """The row as the service made it."""
        request.new_key = form.created.key  # type: ignore[attr-defined]  # for the answer to this request alone
        return form.created.row

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """It is saved already."""

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """The key, this once: on the page itself, for a message would lie in a cookie until it is read."""
        context = {**self.admin_site.each_context(request), "title": "API key made", "key": request.new_key, "row": obj, "opts": self.opts}  # type: ignore[attr-defined]
        return TemplateResponse(request, "admin/key_made.html", context, headers={"Cache-Control": "no-store"})

    @admin.action(description="Revoke selected keys")
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> HttpResponse | None:
        """Ends the keys for good, once the user has confirmed it."""
        rows = chosen(self, request, keys)
        if rows and not is_confirmed(request):
            lines = [Line(pk=row.pk, name=row.name, notes=[f"{row.prefix}…, {row.owner.get_username()}"]) for row in rows]
            text = "A revoked key is refused from then on, and can't be brought back."
            return ask(self, request, Question(action="revoke", title="Revoke API keys", text=text, go="Revoke", lines=lines))
        for key in rows:
            services.revoke_key(principal=principal_of(request), key=key)
        tell(self, request, done="Revoked", names=[key.name for key in rows])
        return None
