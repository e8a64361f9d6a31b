"""One slot given back by its agent's owner: when its work has stopped, or by force.

A forced release gives up on the proof that the work is over. The row is fenced first, as any lost run's: it fails as
`lease_lost` (as `cancelled`, where that had been asked for), so that neither its worker nor a late result can change anything;
then the slot is free, and the work is told to stop by whoever can: the worker that carries it, and a task that asks its agent.
"""

import uuid
from dataclasses import dataclass

from django.db.models import QuerySet

from backlog import selectors as rows
from backlog import services as backlog
from backlog.models import TERMINAL, Execution, Status
from capacity.leases import Lease
from capacity.manager import CapacityManager
from core import events
from fleet import access, audit
from fleet.models import Agent
from fleet.principals import Principal

from .. import dispatch, selectors
from ..errors import ExecutionNotFound, LeaseLost, NoSlotHeld
from ..events import ExecutionFinished
from ..shutdown import leaving
from . import controls
from .asking import ask_to_end
from .moving_up import start_opened

manager = CapacityManager()

_FORCED = "Its slot was released by force; its work may still go on"
#: Seconds after which an agent that could not be asked is asked again.
_PAUSES = (0.0, 1.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class Release:
    """What became of it: `freed`, or as soon as the work has stopped; `exceeds`: the limit may be exceeded until it has."""

    freed: bool
    exceeds: bool = False


def release_slot(*, principal: Principal, name: str, execution_id: uuid.UUID, force: bool = False) -> Release:
    """Stop this one run of the agent's and free its slot, with `force` at once; again: nothing more happens.

    Raises access's errors, `ExecutionNotFound` for one that isn't the agent's, `NoSlotHeld` for one that waits in line.
    """
    agent = access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    row = _row(agent, execution_id)
    while row.slot_token is not None:
        if (release := _release_as_seen(row, row.slot_token, agent=agent, force=force)) is not None:
            audit.record(principal, "slot_released", agent=agent, after={"execution_id": str(execution_id), "force": force})
            return release
        row = selectors.execution(execution_id)  # it moved between the look and the write: look again
    if row.status == Status.QUEUED:
        raise NoSlotHeld(execution_id=execution_id)
    return Release(freed=True)


def _row(agent: Agent, execution_id: uuid.UUID) -> Execution:
    row = selectors.executions_of(agent).filter(pk=execution_id).first() or _former(agent).filter(pk=execution_id).first()
    if row is None:
        raise ExecutionNotFound
    return row


def _former(agent: Agent) -> QuerySet[Execution]:
    """What deleted agents of that name have not ended yet: it takes places of this one, and is seen there."""
    return rows.holding().filter(agent_name=agent.name, agent__deleted_at__isnull=False).select_related("agent").defer("agent__runtime")


def _release_as_seen(row: Execution, token: uuid.UUID, *, agent: Agent, force: bool) -> Release | None:
    if row.started_at is None:
        return Release(freed=True) if controls.cancel_as_seen(row) else None
    if force:
        return _force(row, token, agent=agent)
    if row.status in TERMINAL or backlog.request_cancel(execution_id=row.pk):
        return Release(freed=False)
    return None


def _force(row: Execution, token: uuid.UUID, *, agent: Agent) -> Release | None:
    lease = Lease(agent=row.agent_name, execution_id=row.pk, token=token, timeout_seconds=row.timeout_seconds)
    outcome = backlog.Outcome(error_code=LeaseLost.code, error=_FORCED)
    if backlog.finish(execution_id=row.pk, token=token, outcome=outcome, session_id=row.session_id):
        events.publish(ExecutionFinished(execution_id=row.pk, agent=row.agent_name))
    elif not backlog.clear_token(execution_id=row.pk, token=token, session_id=row.session_id):
        return None
    # First, for a store that fails from here on: whoever asks again finds a run that has ended.
    dispatch.end_released(lease)
    # With the store out of reach, repair frees what the row has let go of.
    freed = start_opened(lambda: manager.release(agent_id=agent.pk, lease=lease))
    return Release(freed=freed, exceeds=True)


def end_released(*, execution_id: uuid.UUID) -> bool:
    """Ask the agent of a run that ended without a proof to end it; whether it says so.

    Its own worker asks as well, unless it was lost.
    """
    ended = Execution.objects.filter(pk=execution_id, slot_token=None, status__in=TERMINAL, started_at__isnull=False)
    row = ended.select_related("agent").defer("message", "response").first()
    if row is None or not row.agent.runtime:
        return False
    return any(not leaving.wait(pause) and ask_to_end(row, token=uuid.UUID(int=0)) for pause in _PAUSES)
