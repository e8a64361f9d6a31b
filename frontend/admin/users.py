"""Users in the admin, for superusers alone. Ownership and shares say what a user may: there are no groups or permissions."""

from typing import ClassVar

from django.contrib import admin
from django.contrib.auth import admin as auth_admin
from django.contrib.auth.models import Group, User

from .rights import SuperusersOnly

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(auth_admin.UserAdmin, SuperusersOnly):
    """People who sign in."""

    list_display = ("username", "email", "is_superuser", "is_active", "last_login")
    list_filter = ("is_superuser", "is_active")
    filter_horizontal = ()
    actions = None
    fieldsets: ClassVar = [
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Rights", {"fields": ("is_active", "is_superuser")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    ]
    readonly_fields = ("last_login", "date_joined")
