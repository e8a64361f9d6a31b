"""Pages for callers who are handed cursors instead of links."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.db.models import QuerySet
from django.http import QueryDict

from core import api


@dataclass(frozen=True)
class _Asked:
    """As much of a request as makes a page."""

    query_params: QueryDict

    def build_absolute_uri(self) -> str:
        """Links are taken apart again: they may begin anywhere."""
        return ""


def page_of(queryset: QuerySet[Any], arguments: Mapping[str, Any], *, ordering: tuple[str, ...]) -> tuple[list[Any], str | None]:
    """The rows that `limit` and `cursor` ask for, and the next page's cursor; raises `Invalid` for a spoilt one."""
    asked = QueryDict(mutable=True)
    asked.update({name: str(arguments[name]) for name in api.KeysetPagination.parameters if name in arguments})
    pages = api.KeysetPagination()
    pages.ordering = ordering
    request: Any = _Asked(asked)
    rows = pages.paginate_queryset(queryset, request)
    link = pages.get_next_link()
    return rows, None if link is None else parse_qs(urlsplit(link).query)[pages.cursor_query_param][0]
