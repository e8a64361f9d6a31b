"""Who may do what in the admin, in place of Django's model permissions."""

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest

from core.errors import TrinityError
from fleet.principals import Principal


def principal_of(request: HttpRequest) -> Principal:
    """The person who uses the admin."""
    return Principal.of_user(request.user)  # type: ignore[arg-type]  # the site lets nobody else in


class Served(admin.ModelAdmin):
    """An admin whose writes are services, each with its own transaction, and whose rows are chosen by `get_queryset`.

    Nothing is ever deleted from here.
    """

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
