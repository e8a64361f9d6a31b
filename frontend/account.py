"""The account: one's own password, and one's own keys."""

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.views import PasswordChangeView
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse_lazy
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from core.errors import TrinityError
from fleet import keys, services
from fleet.models import ApiKey, KeyScope
from fleet.principals import Principal

from .pages.shared import PAGE_METHODS

SHOWN_KEYS = 200
LONGEST_DAYS = 3650


class KeyForm(forms.Form):
    """A new key. Days and no moment: nobody has to think of time zones."""

    name = forms.CharField(max_length=100, help_text="What it is for.")
    days = forms.IntegerField(
        label="Days until it expires", min_value=1, max_value=LONGEST_DAYS, required=False, help_text="Empty: it works until it is revoked."
    )

    @property
    def expires_in(self) -> timedelta | None:
        """None for a key that doesn't."""
        days = self.cleaned_data["days"]
        return None if days is None else timedelta(days=days)


@method_decorator(never_cache, name="dispatch")
class AccountPage(LoginRequiredMixin, PasswordChangeView):
    """One's own password, which the page's first form changes, and one's own keys."""

    http_method_names = PAGE_METHODS
    template_name = "frontend/account.html"
    success_url = reverse_lazy("frontend:account-changed")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the keys that can be revoked, and a form for a new one."""
        own = _own_keys(self.request).filter(revoked_at=None).order_by("-created_at", "-id")[:SHOWN_KEYS]
        context = {"section": "account", "keys": own, "key_form": KeyForm(), "now": timezone.now()}
        return super().get_context_data(**(context | kwargs))


class KeysPage(AccountPage):
    """The account's second form, which makes a key."""

    http_method_names = ["post", "options"]  # noqa: RUF012 - a list, as its base has it

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The key, this once: on the page itself, for a message would lie in a cookie until it is read."""
        form = KeyForm(request.POST)
        if form.is_valid() and (made := _made(request, form)) is not None:
            return render(request, "frontend/account_key.html", {"section": "account", "row": made.row, "key": made.key})
        return self.render_to_response(self.get_context_data(form=self.form_class(_principal(request).user), key_form=form))


@login_required
@require_safe
def account_changed(request: HttpRequest) -> HttpResponse:
    """The account after its password was changed; other browsers of the same user are signed out by it."""
    return render(request, "frontend/account_changed.html", {"section": "account"})


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def revoke_key(request: HttpRequest, key_id: int) -> HttpResponse:
    """Asks whether to end the key, and ends it where that was confirmed."""
    key = get_object_or_404(_own_keys(request), pk=key_id)
    if request.method != "POST":
        return render(request, "frontend/account_revoke.html", {"section": "account", "key": key})
    services.revoke_key(principal=_principal(request), key=key)
    return redirect("frontend:account")


def _made(request: HttpRequest, form: KeyForm) -> services.NewKey | None:
    principal, expires_in = _principal(request), form.expires_in
    expires_at = None if expires_in is None else timezone.now() + expires_in
    try:
        return services.create_key(
            principal=principal, owner=principal.user, scope=KeyScope.USER, name=form.cleaned_data["name"], expires_at=expires_at
        )
    except TrinityError as refusal:
        form.add_error(None, refusal.detail)
        return None


def _own_keys(request: HttpRequest) -> QuerySet[ApiKey]:
    # Those of the system are no person's own; superusers find them in the admin.
    return keys.keys_managed_by(_principal(request)).filter(scope=KeyScope.USER)


def _principal(request: HttpRequest) -> Principal:
    return Principal.of_user(request.user)  # type: ignore[arg-type]  # signed in: no view is reached otherwise
