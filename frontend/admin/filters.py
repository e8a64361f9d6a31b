"""Filters of lists: they name what is the reader's own, and count nothing."""

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Count, Exists, F, IntegerField, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Least
from django.http import HttpRequest
from django.utils import timezone

from backlog.models import TERMINAL, Execution, Status
from fleet.models import Agent
from fleet.selectors import ceiling, living_agents

#: Agents named beside a list; others are found by its search, or by the links of their own pages.
NAMED = 50
#: Of an id: what is longer fits in no column.
MOST_DIGITS = 18


def own_agents(request: HttpRequest) -> QuerySet[Agent]:
    """The living agents of the reader's own, by name; a superuser's are all."""
    agents = living_agents().order_by("name")
    return agents if request.user.is_superuser else agents.filter(owner=request.user.pk)


class OwnAgentFilter(admin.SimpleListFilter):
    """By one of the reader's own agents."""

    title = "agent"
    parameter_name = "agent"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The first few by name, and the one that is chosen."""
        found = dict(own_agents(request).values_list("pk", "name")[:NAMED])
        value = self.value()
        if value and value.isascii() and value.isdecimal() and len(value) <= MOST_DIGITS and int(value) not in found:
            found |= dict(own_agents(request).filter(pk=value).values_list("pk", "name"))
        return [(str(pk), name) for pk, name in found.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Its rows."""
        value = self.value()
        if value is None:
            return None
        if not (value.isascii() and value.isdecimal() and len(value) <= MOST_DIGITS):
            raise IncorrectLookupParameters
        return queryset.filter(agent=int(value))


class AboutFilter(OwnAgentFilter):
    """As above; a superuser's also by what belongs to no agent."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The fleet first."""
        fleet = [("fleet", "The fleet")] if request.user.is_superuser else []
        return [*fleet, *super().lookups(request, model_admin)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Its rows."""
        return queryset.filter(agent=None) if self.value() == "fleet" else super().queryset(request, queryset)


class SourceFilter(admin.SimpleListFilter):
    """By what kind of caller submitted it; Django's own filter would look for the kinds in every row."""

    title = "source"
    parameter_name = "source"
    kinds = ("user", "agent", "system", "public")

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The kinds."""
        return [(kind, kind.capitalize()) for kind in self.kinds]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Execution]) -> QuerySet[Execution] | None:
        """Its rows."""
        return None if self.value() is None else queryset.filter(source_kind=self.value())


class SinceFilter(admin.SimpleListFilter):
    """By how long ago; `column` is when."""

    parameter_name = "since"
    column = "created_at"
    spans = {"1": "Last hour", "24": "Last 24 hours", "168": "Last 7 days", "720": "Last 30 days"}  # noqa: RUF012 - never changed

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Hours."""
        return list(self.spans.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """What came since."""
        value = self.value()
        if value is None:
            return None
        if value not in self.spans:
            raise IncorrectLookupParameters
        return queryset.filter(**{f"{self.column}__gte": timezone.now() - timedelta(hours=int(value))})


class SubmittedFilter(SinceFilter):
    """By when it was submitted."""

    title = "submitted"


class ChangedFilter(SinceFilter):
    """By when it was changed."""

    title = "when"
    column = "at"


class LoadFilter(admin.SimpleListFilter):
    """Agents by what they carry, as the rows tell it: by partial indexes that hold only what waits and what runs."""

    title = "load"
    parameter_name = "load"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Words of load."""
        return [("waiting", "Tasks wait"), ("full", "No slot free"), ("over", "Over limit"), ("lost", "Lost slots")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Agent]) -> QuerySet[Agent] | None:
        """Those that carry it."""
        mine = Execution.objects.filter(agent=OuterRef("pk"))
        match self.value():
            case None:
                return None
            case "waiting":
                return queryset.filter(Exists(mine.filter(status=Status.QUEUED)))
            case "lost":
                return queryset.filter(Exists(mine.filter(slot_token__isnull=False, status__in=TERMINAL)))
            case "full":
                return _held_above_limit(queryset, slack=1)
            case "over":
                return _held_above_limit(queryset, slack=0)
            case _:
                raise IncorrectLookupParameters


def _held_above_limit(agents: QuerySet[Agent], *, slack: int) -> QuerySet[Agent]:
    """Those that hold more slots, with `slack` counted in, than they may."""
    held = Execution.objects.filter(agent=OuterRef("pk"), slot_token__isnull=False).order_by().values("agent").annotate(n=Count("*"))
    return agents.annotate(
        held=Coalesce(Subquery(held.values("n"), output_field=IntegerField()), 0) + slack,
        bound=Least(F("max_parallel_tasks"), Value(ceiling())),
    ).filter(held__gt=F("bound"))
