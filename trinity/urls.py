"""All URLs."""

from django.contrib import admin
from django.urls import path, re_path

from core import api

urlpatterns = [
    path("admin/", admin.site.urls),
    # Rooms with an API go above this line.
    re_path(r"^api(?:/.*)?$", api.unknown_path),
]

handler400 = api.bad_request
handler403 = api.forbidden
handler404 = api.not_found
handler500 = api.server_error
