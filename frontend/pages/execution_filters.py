"""What the executions page is narrowed by: the API's own filters, and a span that ends now."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from core import api
from core.api.queries import Reader
from core.errors import Invalid
from runtime.views.filters import FILTERS

SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
#: As in the API, but for what cuts the page.
_READERS: dict[str, Reader] = {"agent": api.text(), **{name: read for name, read in FILTERS.items() if name not in {"cursor", "limit"}}}


@dataclass(frozen=True, kw_only=True)
class Filters:
    """`asked`: the API's filters with what they mean; `within`: the span that made its `since`, or ""."""

    asked: Mapping[str, Any]
    within: str

    def __bool__(self) -> bool:
        return bool(self.asked)

    @property
    def body(self) -> dict[str, Any]:
        """As the API takes them for a change of all that match."""
        return {name: _plain(value) for name, value in self.asked.items() if value != "false"} | (
            {"mine": True} if self.asked.get("mine") == "true" else {}
        )

    @property
    def query(self) -> str:
        """As the page's own URL has them."""
        pairs = {name: _plain(value) for name, value in self.asked.items() if not (self.within and name == "since")}
        return urlencode(pairs | ({"within": self.within} if self.within else {}), doseq=True)


def filters_of(request: HttpRequest, *, now: datetime) -> Filters:
    """The filters in the URL; one that means nothing is passed over, as an empty field of the form is."""
    asked = {name: read for name in _READERS if (read := _read(request, name)) is not None}
    within = request.GET.get("within", "")
    if "since" not in asked and within in SPANS:
        return Filters(asked=asked | {"since": (now - SPANS[within]).replace(microsecond=0)}, within=within)
    return Filters(asked=asked, within="")


def _read(request: HttpRequest, name: str) -> Any:
    sent = [str(value).strip() for value in request.GET.getlist(name)]
    sent = [value for value in sent if value]
    try:
        return _READERS[name](name, sent) if sent else None
    except Invalid:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value if isinstance(value, list) else str(value)
