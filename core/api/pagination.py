"""Lists in pages: `{results, next, previous}`, cut by the last row's place, not by counting."""

import json
from base64 import b64decode
from typing import Any
from urllib.parse import parse_qs

from django.core.exceptions import ValidationError as DjangoValidationError
from django.db.models import DateTimeField, Model, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from rest_framework.pagination import Cursor, CursorPagination, _reverse_ordering
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Invalid

from .fields import parse_moment
from .parsers import text_problem
from .queries import Reader, integer, text

DEFAULT_LIMIT, MAX_LIMIT = 50, 200


class KeysetPagination(CursorPagination):
    """REST framework's cursors with the whole ordering as position.

    Its own look at the first column only and count rows from there, at most a thousand: of rows inserted in one instant
    a list would never get past them. The last column of `ordering` must be unique and none may be null.
    """

    page_size = DEFAULT_LIMIT
    max_page_size = MAX_LIMIT
    page_size_query_param = "limit"
    ordering: Any = ("-created_at", "-id")
    template = None
    #: For `strict_query`, beside a list's own filters.
    parameters: dict[str, Reader] = {"limit": integer(1, MAX_LIMIT), "cursor": text(max_length=2000)}  # noqa: RUF012 - read only

    @classmethod
    def answer(cls, queryset: QuerySet[Any], request: Request, render: Any, *, ordering: tuple[str, ...] | None = None) -> Response:
        """The page that `request` asks for, each row through `render`."""
        paginator = cls()
        paginator.ordering = ordering or cls.ordering
        rows = paginator.paginate_queryset(queryset, request) or []
        return paginator.get_paginated_response([render(row) for row in rows])

    def get_page_size(self, request: Request) -> int:
        """The `limit` asked for; out of its bounds it is an error, not the bound."""
        sent = request.query_params.getlist("limit")
        return self.parameters["limit"]("limit", sent) if sent else DEFAULT_LIMIT

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        """The rows after the cursor, in the list's order."""
        self.request = request
        self.page_size = self.get_page_size(request)
        self.base_url = request.build_absolute_uri()
        self.ordering = tuple(self.ordering)
        self.cursor = self.decode_cursor(request)
        back = bool(self.cursor and self.cursor.reverse)
        way = tuple(_reverse_ordering(self.ordering)) if back else self.ordering
        if self.cursor is not None:
            position: Any = self.cursor.position
            queryset = queryset.filter(_beyond(queryset.model, way, position))
        found = list(queryset.order_by(*way)[: self.page_size + 1])
        self.page = found[: self.page_size]
        more = len(found) > self.page_size
        if back:
            self.page.reverse()
        self.has_next, self.has_previous = (True, more) if back else (more, self.cursor is not None)
        return self.page

    def get_next_link(self) -> str | None:
        """The list after this page."""
        return self._link(self.page[-1] if self.page else None, back=False) if self.has_next else None

    def get_previous_link(self) -> str | None:
        """The list before this page."""
        return self._link(self.page[0] if self.page else None, back=True) if self.has_previous else None

    def _link(self, row: Any, *, back: bool) -> str | None:
        if row is None:
            return None
        position: Any = json.dumps([str(getattr(row, name.lstrip("-"))) for name in self.ordering])
        return self.encode_cursor(Cursor(0, back, position))

    def decode_cursor(self, request: Request) -> Any:
        """The cursor sent, or None; a spoilt one is `Invalid`."""
        sent = request.query_params.get(self.cursor_query_param)
        if sent is None:
            return None
        try:
            tokens = parse_qs(b64decode(sent.encode("ascii"), validate=True).decode("ascii"), strict_parsing=True)
            values = json.loads(tokens["p"][0])
            if len(values) != len(self.ordering) or not all(isinstance(value, str) for value in values):
                raise ValueError(values)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Invalid("cursor is not one of this list") from error
        return Cursor(0, "r" in tokens, values)

    def get_paginated_response(self, data: list[Any]) -> Response:
        """The answer."""
        return Response({"results": data, "next": self.get_next_link(), "previous": self.get_previous_link()})


def _beyond(model: type[Model], way: tuple[str, ...], position: list[str]) -> Q:
    """Rows behind `position` on the `way`."""
    *_, unique = names = [name.lstrip("-") for name in way]
    fields: dict[str, Any] = {name: model._meta.get_field(name) for name in names}
    sent = {name: _sent(fields[name], text) for name, text in zip(names, position, strict=True)}
    last = {unique: sent[unique]}
    # A column is compared with what the database itself holds for the row: SQLite compares moments as text, and those it
    # stamped have fewer digits than those Django writes. The value sent is for a row that is gone by now.
    held = {name: sent[name] if name == unique else _held(model, last, fields[name], sent[name]) for name in names}
    beyond = Q()
    equal: dict[str, Any] = {}
    for name in way:
        column = name.lstrip("-")
        beyond |= Q(**equal, **{f"{column}__{_after(name)}": held[column]})
        equal[column] = held[column]
    # Said again in a form that an index can be entered by.
    return Q(**{f"{names[0]}__{_after(way[0])}e": held[names[0]]}) & beyond


def _sent(field: Any, text: str) -> Any:
    """The column's value as `_link` spells it. Any other spelling is somebody's own, and may be of what no database takes."""
    try:
        value = parse_moment(text) if isinstance(field, DateTimeField) else field.to_python(text)
        field.run_validators(value)
    except DjangoValidationError as error:
        raise Invalid("cursor is not one of this list") from error
    if str(value) != text or text_problem(text):
        raise Invalid("cursor is not one of this list")
    return value


def _after(name: str) -> str:
    return "lt" if name.startswith("-") else "gt"


def _held(model: type[Model], row: dict[str, Any], field: Any, otherwise: Any) -> Coalesce:
    return Coalesce(Subquery(model._base_manager.filter(**row).values(field.name)[:1]), Value(otherwise, output_field=field))
