"""URL helpers: every API path works with and without its trailing slash, without a redirect."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.urls import URLPattern, path


def both(route: str, view: Callable[..., Any], *, name: str) -> list[URLPattern]:
    """Two patterns for `route`; the form written is the one that `reverse(name)` and the schema give."""
    other = route.rstrip("/") if route.endswith("/") else f"{route}/"
    return [path(other, _second_form(view)), path(route, view, name=name)]


def _second_form(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def same(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    same.second_form = True  # type: ignore[attr-defined]  # for `core.api.schema`
    return same
