"""All URLs."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from core import api
from core.urls import both
from frontend.openapi import DocsView, SchemaView

urlpatterns = [
    path("admin", RedirectView.as_view(url="/admin/", query_string=True, http_method_names=["get", "head"])),
    path("admin/", admin.site.urls),
    path("", include("core.health")),
    # Before the fleet's: `agents/slots` is no agent's name.
    path("api/", include("runtime.urls")),
    path("api/", include("fleet.urls")),
    path("", include("frontend.api_urls")),
    path("", include("frontend.urls")),
    *both("api/schema/", SchemaView.as_view(), name="schema"),
    *both("api/docs/", DocsView.as_view(), name="docs"),
    # The last pattern under `/api/`.
    re_path(r"^api(?:/.*)?$", api.unknown_path),
]

handler400 = api.bad_request
handler403 = api.forbidden
handler404 = api.not_found
handler500 = api.server_error
