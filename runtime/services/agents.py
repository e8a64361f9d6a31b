"""An agent changed, or deleted with all that it has in line and in its slots.

A deletion is a fact in the database first: from then on nothing of the agent is put in line, drained, handed over or begun.
What was on its way at that moment (a row inserted by a request that had looked before, a claim put back in line) is ended by
the sweep, which comes back to the agent until nothing of it is left.
"""

from collections.abc import Mapping
from typing import Any

from backlog import selectors as rows
from capacity.errors import SlotsUnavailable
from capacity.manager import CapacityManager
from fleet import access, lifecycle, limits
from fleet.events import tell_rights_changed
from fleet.models import Agent
from fleet.principals import Principal

from . import controls, lines, schedules

manager = CapacityManager()

_DELETED = "agent_deleted"


def change_agent(*, principal: Principal, name: str, changes: Mapping[str, Any], expected_version: int | None = None) -> Agent:
    """Change an agent's description, owner, runtime, or limits; a raise starts what waits, a cut stops nothing.

    Raises what `lifecycle.change_agent` does, and access's errors.
    """
    agent = access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    changed, what = lifecycle.change_agent(principal=principal, agent=agent, changes=changes, expected_version=expected_version)
    if "owner" in what:
        tell_rights_changed(changed.name)
    if what.intersection(limits.TOLD):
        controls.limit_changed(changed)
    return changed


def delete_agent(*, principal: Principal, name: str) -> None:
    """Delete the agent: cancel its line, ask its runs to end, and free its name. Raises access's errors."""
    agent = access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    deleted = lifecycle.delete_agent(principal=principal, agent=agent)
    _end_all(deleted)
    try:
        _clear(deleted)
    except SlotsUnavailable:
        return  # the sweep clears it


def finish_deletions() -> None:
    """End what deleted agents still have, and forget those that have nothing any more."""
    for agent in rows.agents_leaving().defer("runtime"):
        _end_all(agent)
        _clear(agent)


def _end_all(agent: Agent) -> None:
    schedules.end_schedules(agent)
    lines.cancel_waiting(agent, error_code=_DELETED)
    for row in rows.holding_of(agent.pk):
        controls.cancel_as_seen(row, error_code=_DELETED)


def _clear(agent: Agent) -> None:
    """Remove its keys once nothing of it holds a slot; what its slots show of their messages goes at once."""
    if manager.forget(agent.name) and not rows.unfinished_of(agent.pk).exists():
        lifecycle.note_cleared(agent)
