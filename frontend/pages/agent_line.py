"""The backlog of an agent's page, in order, each with its reason to wait."""

from dataclasses import dataclass

from django.db.models.functions import Left

from backlog import selectors as backlog
from backlog.models import Execution
from fleet import access
from fleet.models import Agent, FleetSettings
from fleet.principals import Principal
from runtime.standing import StartRange, WaitingFor, standings

from .agent_slots import PREVIEW_CHARACTERS

SHOWN = 50

#: What `waiting_for` means to a person.
REASONS = {
    WaitingFor.PAUSED: "the agent is paused",
    WaitingFor.SESSION: "an earlier task of its session",
    WaitingFor.FLEET: "the fleet's cap",
    WaitingFor.CEILING: "a slot, at the ceiling",
    WaitingFor.SLOT: "a free slot",
    WaitingFor.WORKER: "a worker",
}
_UNREAD = ("message", "system_prompt", "allowed_tools", "metadata", "response", "error", "agent__runtime")


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """One row in line; `start` None where nobody can tell."""

    position: int | None
    row: Execution
    preview: str
    reason: str
    start: StartRange | None
    may_cancel: bool


def line_of(principal: Principal, agent: Agent, *, fleet: FleetSettings) -> list[Waiting]:
    """The first of the agent's line, by at most five queries."""
    queue = backlog.queue_of(agent.pk).select_related("agent").defer(*_UNREAD).annotate(preview=Left("message", PREVIEW_CHARACTERS))
    rows = list(queue[:SHOWN])
    told = standings(rows)
    return [
        Waiting(
            position=told[row.pk].queue_position,
            row=row,
            preview=row.preview,
            reason=_reason(told[row.pk].waiting_for, fleet),
            start=told[row.pk].estimated_start,
            may_cancel=access.may_cancel(principal, agent, submitted_by_id=row.submitted_by_id, submitted_key_id=row.submitted_key_id),
        )
        for row in rows
    ]


def _reason(word: WaitingFor | None, fleet: FleetSettings) -> str:
    if word is WaitingFor.PAUSED and fleet.paused:
        return "the whole fleet is paused"
    return "its turn" if word is None else REASONS[word]
