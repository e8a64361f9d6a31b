"""The apps: the pages, and Django's admin with our site."""

from django.apps import AppConfig
from django.contrib.admin import apps as admin_apps


class FrontendConfig(AppConfig):
    """Frontend."""

    name = "frontend"
    default = True


class AdminConfig(admin_apps.AdminConfig):
    """Django's admin."""

    default_site = "frontend.site.Site"
    default = False
