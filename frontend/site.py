"""The admin site: who may enter it, and by which door."""

from functools import wraps
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path

from fleet.selectors import living_agents

from . import front

#: Characters of one value in an address: SQLite compares no longer pattern than 50 000 bytes.
MOST_CHARACTERS = 2_000


class Site(AdminSite):
    """Django's admin for whoever owns an agent, and for superusers.

    Owning an agent is what makes staff here; `is_staff` says nothing, so nobody has to keep it in step with ownership.
    """

    site_header = "Trinity"
    site_title = "Trinity"
    index_title = "Administration"
    site_url = "/"

    def has_permission(self, request: HttpRequest) -> bool:
        """Whether the user may enter at all; each model then shows them what is theirs. One query a request."""
        user = request.user
        owns = getattr(request, "owns_an_agent", None)
        if owns is None:
            owns = living_agents().filter(owner=user.pk).exists()
            request.owns_an_agent = owns  # type: ignore[attr-defined]  # kept for the next ask
        return user.is_active and (user.is_superuser or owns)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """`view`, for which an address has no text that databases fail over."""
        inner = super().admin_view(view, cacheable)

        @wraps(inner)
        def tidied(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            request.GET = _harmless(request.GET)  # type: ignore[assignment]  # nobody writes to it
            return inner(request, *args, **kwargs)

        return tidied

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """On to the one login page, whose tries are counted; a 403 for who is signed in and owns nothing."""
        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied
        return redirect_to_login(request.GET.get("next", "/admin/"))

    def get_urls(self) -> list[URLResolver | URLPattern]:
        """With the guide."""
        return [path("guide/", self.admin_view(self.guide), name="guide"), *super().get_urls()]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """How the reader's agents are doing, and what there is to use."""
        return super().index(request, {"tiles": front.tiles_of(request.user), **(extra_context or {})})  # type: ignore[arg-type]  # signed in

    def guide(self, request: HttpRequest) -> HttpResponse:
        """How owners use all this."""
        context = {**self.each_context(request), "title": "Guide for owners", "guide": front.guide()}
        return TemplateResponse(request, "admin/guide.html", context)


def _harmless(query: QueryDict) -> QueryDict:
    """Without NULs, which PostgreSQL refuses, and without the rest of what nobody types."""
    if all("\0" not in value and len(value) <= MOST_CHARACTERS for _, values in query.lists() for value in values):
        return query
    tidy = query.copy()
    for name, values in query.lists():
        tidy.setlist(name, [value.replace("\0", "")[:MOST_CHARACTERS] for value in values])
    return tidy
