"""What the sockets of executions read of the database, each in one call on a thread."""

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Subquery
from django.db.models.expressions import OuterRef

from backlog.models import TERMINAL, Execution, ExecutionEvent
from fleet import access
from fleet.models import Agent
from fleet.principals import Principal
from runtime.serializers.executions import EventOut, ExecutionOut
from runtime.standing import standings

from . import frames
from .readers import Reader, alive

#: Entries that one read, and one frame, has at most.
ENTRIES_A_READ = 200
#: A frame ends with the entry that brings it to this size.
FRAME_CHARACTERS = 128 * 1024
#: Texts of any length: whoever wants them asks for the execution.
_LONG = ("message", "response", "error", "metadata")
_UNREAD = ("message", "response", "error", "metadata", "system_prompt", "allowed_tools", "agent__runtime")


@dataclass(frozen=True, kw_only=True)
class Look:
    """An execution as it stood at one instant: its state for a frame, the number of its last entry, whether it has ended."""

    state: dict[str, Any]
    last: int
    ended: bool


@dataclass(frozen=True, kw_only=True)
class Page:
    """Entries of a log as a frame, and the number of the last of them."""

    frame: str
    last: int


class StateOut(ExecutionOut):
    """An execution without the long texts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in _LONG:
            del self.fields[name]


def looks_at(execution_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Look]:
    """How each stands; those that are gone are left out.

    Status and last entry are read by one query: of what has ended the log is whole, so nothing comes after that entry.
    """
    last = ExecutionEvent.objects.filter(execution=OuterRef("pk")).order_by("-seq").values("seq")[:1]
    asked = Execution.objects.filter(pk__in=list(execution_ids)).select_related("agent").defer(*_UNREAD)
    rows = list(asked.annotate(last_seq=Subquery(last)))
    context = {"standings": standings(rows)}
    return {
        row.pk: Look(state=dict(StateOut(row, context=context).data), last=row.last_seq or 0, ended=row.status in TERMINAL) for row in rows
    }


def page_behind(execution_id: uuid.UUID, after: int) -> Page | None:
    """The next entries of its log; None where there are none."""
    rows = ExecutionEvent.objects.filter(execution=execution_id, seq__gt=after).order_by("seq")[:ENTRIES_A_READ]
    texts: list[str] = []
    last, characters = after, 0
    for row in rows:
        entry: Any = EventOut(row)  # one of its fields is called as what is rendered
        texts.append(frames.text_of(entry.data))
        last, characters = row.seq, characters + len(texts[-1])
        if characters >= FRAME_CHARACTERS:
            break
    return Page(frame=frames.entries(texts), last=last) if texts else None


def still_readable(asked: Iterable[tuple[Reader, int]]) -> dict[tuple[Reader, int], bool | None]:
    """Whether each may still read of the agent with this id; None where their credential is dead. A query for each principal."""
    pairs = set(asked)
    principals = alive({reader for reader, _ in pairs})
    wanted: dict[Principal, set[int]] = {}
    for reader, agent_id in pairs:
        if reader in principals:
            wanted.setdefault(principals[reader], set()).add(agent_id)
    readable = {(principal, agent_id) for principal, ids in wanted.items() for agent_id in _readable(principal, ids)}
    return {(reader, agent): (principals[reader], agent) in readable if reader in principals else None for reader, agent in pairs}


def _readable(principal: Principal, agent_ids: set[int]) -> set[int]:
    # Deleted ones too: what they have run stays their owner's to read.
    agents = access.with_shares(Agent.objects.filter(pk__in=agent_ids).defer("runtime"), principal)
    return {agent.pk for agent in agents if access.may(principal, access.Verb.READ, agent)}
