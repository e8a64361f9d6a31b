"""Pages of tables that may have a million rows: never counted in full."""

from typing import Any, cast

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property

#: As many rows as are counted and leafed through; what lies behind them is found by filter and search.
MOST_LISTED = 10_000


class BoundedPaginator(Paginator):
    """Counts no further than `MOST_LISTED`."""

    @cached_property
    def counted(self) -> int:
        """How many there are, or one more than are listed."""
        rows = cast("QuerySet[Any]", self.object_list)  # the admin pages nothing else
        return rows.order_by()[: MOST_LISTED + 1].count()

    @property
    def more(self) -> int | None:
        """How many are listed, where there are more; for the words below the list."""
        return MOST_LISTED if self.counted > MOST_LISTED else None

    @cached_property
    def count(self) -> int:
        """How many are listed."""
        return min(self.counted, MOST_LISTED)
