"""URL helpers: every API path works with and without its trailing slash, without a redirect."""

from collections.abc import Callable
from typing import Any

from django.urls import URLPattern, path


def both(route: str, view: Callable[..., Any], *, name: str) -> list[URLPattern]:
    """Two patterns for `route`; the form written is the one that `reverse(name)` gives."""
    other = route.rstrip("/") if route.endswith("/") else f"{route}/"
    return [path(other, view), path(route, view, name=name)]
