"""What owners do with several agents at once: each by the service that the API calls, each told for itself."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.timesince import timesince

from backlog import selectors as backlog
from backlog.models import TERMINAL, Execution
from core.errors import TrinityError
from fleet.models import Agent
from fleet.principals import Principal
from runtime.services import controls, lines, releases

from ..load import load_of
from .confirming import Line, Question, ask, chosen, is_confirmed, tell
from .rights import Served, principal_of

#: Does it to one agent, and says what there is to say beside its name.
Deed = Callable[[Principal, Agent], str]


def lost_slots(agents: Sequence[Agent]) -> dict[str, list[Execution]]:
    """By agent's name: runs that are over for us and still hold their slots, for nobody could say that their work has ended."""
    found: dict[str, list[Execution]] = defaultdict(list)
    names = [agent.name for agent in agents]
    held = backlog.holding().filter(agent_name__in=names, status__in=TERMINAL).order_by("slot_number", "id")
    for row in held.only("agent_name", "slot_number", "status", "error_code", "completed_at"):
        found[row.agent_name].append(row)
    return found


class AgentActions(Served):
    """Pause, resume, clear, release."""

    actions = ("pause", "resume", "clear_backlog", "release_lost")

    @admin.action(description="Pause selected agents")
    def pause(self, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
        """Nothing new of them starts."""
        text = "Nothing new of these agents starts until they are resumed. What runs goes on, and new tasks still join the line."
        return self._act(request, queryset, ("pause", "Pause agents", text, "Pause"), _loads, "Paused", _pause)

    @admin.action(description="Resume selected agents")
    def resume(self, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
        """Their lines start."""
        text = "What waits in the lines of these agents starts at once, as far as slots are free."
        return self._act(request, queryset, ("resume", "Resume agents", text, "Resume"), _loads, "Resumed", _resume)

    @admin.action(description="Clear the backlog of selected agents")
    def clear_backlog(self, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
        """What waits is cancelled."""
        text = "Everything that waits in the lines of these agents is cancelled, for good. What runs goes on."
        return self._act(request, queryset, ("clear_backlog", "Clear backlogs", text, "Clear"), _waiting, "Cleared", _clear)

    @admin.action(description="Release the lost slots of selected agents")
    def release_lost(self, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
        """Slots of runs that are over are free."""
        text = (
            "These runs are over, yet nobody could say that their work has ended. Releasing their slots gives up on that proof: "
            "should the work go on after all, an agent does more at once than its limit says."
        )
        return self._act(request, queryset, ("release_lost", "Release lost slots", text, "Release"), _slots, "Released", _release)

    def _act(
        self,
        request: HttpRequest,
        queryset: QuerySet[Agent],
        words: tuple[str, str, str, str],
        noted: Callable[[Sequence[Agent]], dict[str, list[str]]],
        done: str,
        deed: Deed,
    ) -> HttpResponse | None:
        """Ask, or once confirmed do it to one after the other: a refusal stops none of the rest."""
        rows = chosen(self, request, queryset)
        if rows and is_confirmed(request):
            self._do(request, rows, done, deed)
            return None
        notes = noted(rows) if rows else {}
        shown = [Line(pk=row.pk, name=row.name, notes=notes[row.name]) for row in rows if row.name in notes]
        if rows and not shown:
            self.message_user(request, "There is nothing to do: none of these agents has any.", messages.INFO)
        if not shown:
            return None
        action, title, text, go = words
        return ask(self, request, Question(action=action, title=title, text=text, go=go, lines=shown))

    def _do(self, request: HttpRequest, rows: Sequence[Agent], done: str, deed: Deed) -> None:
        names: list[str] = []
        refused: list[tuple[str, str]] = []
        for row in rows:
            try:
                said = deed(principal_of(request), row)
            except TrinityError as refusal:
                refused.append((row.name, refusal.detail))
            else:
                names.append(f"{row.name} ({said})" if said else row.name)
        tell(self, request, done=done, names=names, refused=refused)


# -- What the page says of each; agents that are left out have nothing to do it to -----------------------------------------
def _loads(agents: Sequence[Agent]) -> dict[str, list[str]]:
    meters: dict[str, Any] = load_of(agents).meters
    return {name: [f"{_used(meter)}, {meter.queued} waiting{', paused' if meter.paused else ''}"] for name, meter in meters.items()}


def _used(meter: Any) -> str:
    return "slots in use unknown" if meter.active is None else f"{meter.active} of {meter.max} slots in use"


def _waiting(agents: Sequence[Agent]) -> dict[str, list[str]]:
    depths = backlog.depths([agent.pk for agent in agents])
    return {agent.name: [f"{depths[agent.pk]} waiting"] for agent in agents if depths.get(agent.pk)}


def _slots(agents: Sequence[Agent]) -> dict[str, list[str]]:
    return {name: [_slot(row) for row in rows] for name, rows in lost_slots(agents).items()}


def _slot(row: Execution) -> str:
    ended = "" if row.completed_at is None else f", over for {timesince(row.completed_at)}"
    return f"slot {row.slot_number}: {row.pk} ({row.error_code or row.status}{ended})"


# -- The deeds -------------------------------------------------------------------------------------------------------------
def _pause(principal: Principal, agent: Agent) -> str:
    controls.pause_agent(principal=principal, name=agent.name)
    return ""


def _resume(principal: Principal, agent: Agent) -> str:
    controls.resume_agent(principal=principal, name=agent.name)
    return ""


def _clear(principal: Principal, agent: Agent) -> str:
    return f"{lines.clear_line(principal=principal, name=agent.name)} cancelled"


def _release(principal: Principal, agent: Agent) -> str:
    found = lost_slots([agent])[agent.name]
    freed = [releases.release_slot(principal=principal, name=agent.name, execution_id=row.pk, force=True).freed for row in found]
    later = freed.count(False)
    return f"{freed.count(True)} freed" + (f", {later} as soon as the slot store answers" if later else "")
