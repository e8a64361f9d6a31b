"""The page between an action and its deed: what was chosen, confirmed, done, and told row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

#: Rows of one action: a form with a field for each has to stay below what Django takes (1000).
MOST = 500
#: Names in one message, and messages at once: they travel in a cookie.
TOLD = 10


@dataclass(frozen=True, kw_only=True)
class Line:
    """One chosen row on the page: its name, and what the action means for it."""

    pk: object
    name: str
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the page asks. `go` is the button's word."""

    action: str
    title: str
    text: str
    go: str
    lines: Sequence[Line]


def is_confirmed(request: HttpRequest) -> bool:
    """Whether the page was answered with yes."""
    return "confirmed" in request.POST


def chosen(model_admin: ModelAdmin, request: HttpRequest, queryset: QuerySet[Any], *, most: int = MOST) -> list[Any]:
    """The rows to act on; none, and told so, where there are none or too many.

    Once confirmed they are those that the page named, whatever a filter or a select-all would give by then.
    """
    if is_confirmed(request):
        queryset = model_admin.get_queryset(request).filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME))
    rows = list(queryset[: most + 1])
    if len(rows) > most:
        model_admin.message_user(request, f"Choose at most {most} at once; nothing was done.", messages.ERROR)
        return []
    if not rows:
        model_admin.message_user(request, "Nothing was done: none of the chosen rows is there any more.", messages.WARNING)
    return rows


def ask(model_admin: ModelAdmin, request: HttpRequest, question: Question) -> HttpResponse:
    """The page that asks."""
    context = {
        **model_admin.admin_site.each_context(request),
        "title": question.title,
        "question": question,
        "opts": model_admin.opts,
        "checkbox": ACTION_CHECKBOX_NAME,
    }
    return TemplateResponse(request, "admin/confirm.html", context, headers={"Cache-Control": "no-store"})


def tell(
    model_admin: ModelAdmin, request: HttpRequest, *, done: str, names: Sequence[str], refused: Sequence[tuple[str, str]] = ()
) -> None:
    """Say what was done (`done`: "Paused") and, for each that was refused, why."""
    if names:
        model_admin.message_user(request, f"{done}: {_listed(names)}.", messages.SUCCESS)
    for name, sentence in refused[:TOLD]:
        model_admin.message_user(request, f"Not {done.lower()}: {name} ({sentence.rstrip('.')}).", messages.ERROR)
    if len(refused) > TOLD:
        model_admin.message_user(request, f"Not {done.lower()}: {len(refused) - TOLD} more.", messages.ERROR)


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - TOLD
    return ", ".join(names[:TOLD]) + (f" and {rest} more" if rest > 0 else "")
