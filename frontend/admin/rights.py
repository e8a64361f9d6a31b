"""Who may do what in the admin, in place of Django's model permissions."""

from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import capfirst

from core.errors import TrinityError
from fleet.principals import Principal


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A link above the form of a row."""

    text: str
    url: str


def principal_of(request: HttpRequest) -> Principal:
    """The person who uses the admin."""
    return Principal.of_user(request.user)  # type: ignore[arg-type]  # the site lets nobody else in


class Served(admin.ModelAdmin):
    """An admin whose writes are services, each with its own transaction, and whose rows are chosen by `get_queryset`.

    Nothing is ever deleted from here, and filters count nothing.
    """

    show_facets = admin.ShowFacets.NEVER

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whoever entered the site."""
        return self.admin_site.has_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Rows that aren't theirs are not in the queryset."""
        return self.admin_site.has_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As for the look."""
        return self.admin_site.has_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """As for the look; the service decides about the rest."""
        return self.admin_site.has_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None) -> Any:
        """Outside Django's transaction: a service that starts work publishes it after its own commit, not before a later one."""
        return self._changeform_view(request, object_id, form_url, extra_context)  # type: ignore[attr-defined]  # the stubs leave it out

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Named after what it lists; a number that no column holds is a wrong filter, which SQLite fails over."""
        try:
            return super().changelist_view(request, {"title": capfirst(self.opts.verbose_name_plural), **(extra_context or {})})
        except OverflowError:
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any) -> HttpResponse | None:
        """What is no id of a row names no row; Django would fail over it."""
        try:
            for text in request.POST.getlist(ACTION_CHECKBOX_NAME):
                self.opts.pk.run_validators(self.opts.pk.to_python(text))
        except ValidationError:
            self.message_user(request, "Nothing was done: choose rows of the list.", messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())
        return super().response_action(request, queryset, *args, **kwargs)

    # -- Beside the form of a row
    def trail(self, obj: Any) -> str | None:
        """Which part of the audit trail tells of the row, as a query; None for rows that it doesn't tell of."""
        return None

    def tools(self, obj: Any) -> list[Tool]:
        """Links of the row's own, left of its history."""
        return []

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """On to the audit trail, which knows more than what was done in the admin."""
        obj = self.get_object(request, unquote(object_id))
        if obj is None or (trail := self.trail(obj)) is None:
            return super().history_view(request, object_id, extra_context)
        return HttpResponseRedirect(f"{reverse('admin:fleet_auditentry_changelist')}?{trail}")

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """With those links; a history only where there is one."""
        obj = context.get("original")
        beside: dict[str, Any] = {}
        if obj:
            beside = {"tools": self.tools(obj), "has_history": self.trail(obj) is not None, "show_save_and_add_another": False}
        return super().render_change_form(request, {**context, **beside}, *args, **kwargs)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """There is nothing related."""

    def refuse(self, request: HttpRequest, refusal: TrinityError) -> None:
        """Tell that a change was not made, and take back the word that it was."""
        request.refused = True  # type: ignore[attr-defined]  # read by `message_user`, in the same request
        super().message_user(request, refusal.detail, messages.ERROR)

    def message_user(self, request: HttpRequest, message: Any, level: int | str = messages.INFO, *args: Any, **kwargs: Any) -> None:
        """No success beside a refusal."""
        if level == messages.SUCCESS and getattr(request, "refused", False):
            return
        super().message_user(request, message, level, *args, **kwargs)


class ReadOnly(Served):
    """An admin that shows, and changes nothing but by its actions."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False


class SuperusersOnly(Served):
    """An admin that owners don't see."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Superusers."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers."""
        return bool(request.user.is_active and request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers."""
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Superusers."""
        return self.has_view_permission(request)
