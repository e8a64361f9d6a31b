"""The admin's first page, and the guide that it links to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import Http404
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from backlog import selectors as backlog
from backlog.models import TERMINAL
from fleet.selectors import living_agents

from .load import load_of

GUIDE = Path(settings.BASE_DIR) / "docs" / "owners.md"


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A number, what it counts, and the list of it."""

    label: str
    value: str
    url: str
    is_warning: bool = False


def tiles_of(user: User) -> list[Tile]:
    """How the reader's own agents are doing, by a handful of reads however many they are; a superuser's are all."""
    agents = living_agents() if user.is_superuser else living_agents().filter(owner=user.pk)
    rows = list(agents.only("name", "max_parallel_tasks", "paused"))
    load = load_of(rows)
    meters = load.meters.values()
    places = sum(meter.max for meter in meters)
    running = f"{sum(meter.active or 0 for meter in meters)} / {places}" if load.known else f"unknown / {places}"
    paused = sum(row.paused for row in rows)
    lost = backlog.holding().filter(agent__in=[row.pk for row in rows], status__in=TERMINAL).count()
    where = reverse("admin:fleet_agent_changelist")
    return [
        Tile(label="Agents", value=str(len(rows)), url=where),
        Tile(label="Slots in use", value=running, url=where),
        Tile(label="Waiting", value=str(sum(meter.queued for meter in meters)), url=f"{where}?load=waiting"),
        Tile(label="Paused", value=str(paused), url=f"{where}?paused__exact=1"),
        Tile(label="Lost slots", value=str(lost), url=f"{where}?load=lost", is_warning=lost > 0),
    ]


def guide() -> SafeString:
    """`docs/owners.md` as HTML; links to other files, which nobody serves, are left as their words."""
    if not GUIDE.is_file():
        raise Http404
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(GUIDE.read_text(encoding="utf-8"))
    for token in tokens:
        if token.children:
            token.children = _served(token.children)
    return mark_safe(reader.renderer.render(tokens, reader.options, {}))  # noqa: S308 - our own file, its HTML escaped by the reader


def _served(children: list[Token]) -> list[Token]:
    kept: list[Token] = []
    is_file = False
    for child in children:
        if child.type == "link_open":
            is_file = not _is_path(child.attrs.get("href"))
        if child.type == "image" or (is_file and child.type in {"link_open", "link_close"}):
            continue
        kept.append(child)
    return kept


def _is_path(href: Any) -> bool:
    return str(href).startswith(("/", "https://"))
