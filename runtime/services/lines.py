"""A whole line at once: cleared by its agent's owner, or given up with its agent."""

import itertools

from backlog import bulk
from backlog import selectors as rows
from capacity.manager import CapacityManager
from core import events
from fleet import access, audit
from fleet.models import Agent
from fleet.principals import Principal

from ..events import ExecutionFinished
from .moving_up import start_opened

manager = CapacityManager()

#: Rows cancelled in one transaction: nobody else can enqueue meanwhile.
BATCH = 200


def clear_line(*, principal: Principal, name: str) -> int:
    """Cancel what waits in the agent's line now, and nothing that runs; returns how many. Raises access's errors.

    What is queued after the call began stays.
    """
    agent = access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    cleared = cancel_waiting(agent)
    if cleared:
        audit.record(principal, "queue_cleared", agent=agent, before=cleared, after=0)
    start_opened(lambda: manager.withdraw(agent_id=agent.pk, lease=None))
    return cleared


def cancel_waiting(agent: Agent, *, error_code: str = "cancelled") -> int:
    """Cancel what waits in the agent's line, in batches, and tell who waits for it; returns how many."""
    waiting, cancelled = iter(rows.queued_ids(agent.pk)), 0
    while batch := list(itertools.islice(waiting, BATCH)):
        ended = bulk.cancel_batch(agent_id=agent.pk, execution_ids=batch, error_code=error_code)
        if ended:
            events.publish(*(ExecutionFinished(execution_id=one, agent=agent.name) for one in ended))
        cancelled += len(ended)
    return cancelled
