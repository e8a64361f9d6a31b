"""What owners and superusers steer with: limits, the ceiling, pauses; and the cancel of one execution."""

import uuid
from collections.abc import Mapping
from typing import Any

from backlog import services as backlog
from backlog.models import TERMINAL, Execution, Status
from capacity.events import CapChanged, LimitChanged, PauseChanged
from capacity.leases import Lease
from capacity.manager import CapacityManager
from core import events
from fleet import access, lifecycle
from fleet import services as fleet
from fleet.models import Agent, FleetSettings
from fleet.principals import Principal

from ..errors import AlreadyFinished
from ..events import ExecutionFinished
from ..selectors import cancellable_for
from .moving_up import start_opened

manager = CapacityManager()


# -- Limits ------------------------------------------------------------------------------------------------------------


def set_limit(*, principal: Principal, name: str, changes: Mapping[str, Any], expected_version: int | None = None) -> Agent:
    """Change an agent's `max_parallel_tasks`, `max_backlog_depth`, `execution_timeout_seconds`; a raise starts what waits.

    With `override_until` the limit holds until then, and a `max_parallel_tasks` without it for good.
    Raises access's errors, `Invalid` and, where `expected_version` is another one, `Precondition`.
    """
    agent = access.agent_for(principal=principal, name=name, verb="change")
    changed, _before = fleet.change_limit(principal=principal, agent=agent, changes=changes, expected_version=expected_version)
    limit_changed(changed)
    return changed


def limit_changed(agent: Agent) -> None:
    """Show the agent's new settings, and start what they opened."""
    start_opened(lambda: manager.resize(agent_id=agent.pk))
    events.publish(LimitChanged(agent=agent.name, limit=agent.max_parallel_tasks))


def end_overrides() -> None:
    """Give agents whose override has run out their former limit back; a raise starts what waits, a cut stops nothing."""
    for agent in lifecycle.end_overrides():
        limit_changed(agent)


def set_ceiling(*, principal: Principal, value: int, expected_version: int | None = None) -> FleetSettings:
    """Change the fleet-wide upper bound of every limit; a raise starts what waits. Raises as `fleet.set_ceiling`."""
    changed = fleet.set_ceiling(principal=principal, value=value, expected_version=expected_version)
    start_opened(manager.resize_fleet)
    events.publish(LimitChanged(agent="", limit=changed.max_parallel_tasks_ceiling))
    return changed


def set_cap(*, principal: Principal, value: int | None, on_full: str | None = None, expected_version: int | None = None) -> FleetSettings:
    """Change how many slots the whole fleet may hold (None: no cap), and what becomes of tasks at the cap.

    A raise, or no cap, starts what waits; a cut stops nothing. Raises as `fleet.set_cap`.
    """
    changed = fleet.set_cap(principal=principal, value=value, on_full=on_full, expected_version=expected_version)
    start_opened(manager.resize_fleet)
    events.publish(CapChanged(cap=changed.max_concurrent_tasks))
    return changed


# -- Pauses ------------------------------------------------------------------------------------------------------------


def pause_agent(*, principal: Principal, name: str) -> Agent:
    """Let nothing new of the agent start; what runs goes on, the line fills. Raises access's errors."""
    return _set_paused(principal=principal, name=name, paused=True)


def resume_agent(*, principal: Principal, name: str) -> Agent:
    """Let the agent's line start at once, unless the whole fleet is paused. Raises access's errors."""
    return _set_paused(principal=principal, name=name, paused=False)


def _set_paused(*, principal: Principal, name: str, paused: bool) -> Agent:
    agent = access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    changed = lifecycle.set_paused(principal=principal, agent=agent, paused=paused)
    start_opened(lambda: manager.resize(agent_id=changed.pk))
    events.publish(PauseChanged(agent=changed.name, paused=paused))
    return changed


def pause_fleet(*, principal: Principal) -> bool:
    """Let nothing new of any agent start. Raises `PersonRequired`, `AccessDenied`."""
    return _set_fleet_paused(principal=principal, paused=True)


def resume_fleet(*, principal: Principal) -> bool:
    """Let every line start at once, but those of agents that are paused themselves. Raises as `pause_fleet`."""
    return _set_fleet_paused(principal=principal, paused=False)


def _set_fleet_paused(*, principal: Principal, paused: bool) -> bool:
    now = lifecycle.set_fleet_paused(principal=principal, paused=paused)
    start_opened(manager.resize_fleet)
    events.publish(PauseChanged(agent="", paused=paused))
    return now


# -- Cancel ------------------------------------------------------------------------------------------------------------


def cancel_execution(*, principal: Principal, execution_id: uuid.UUID) -> str:
    """`cancelled` when it is over now, `cancelling` while its work is being stopped; again: the same answer.

    Touches this execution alone. Raises `AlreadyFinished` for one that has ended otherwise.
    """
    row = cancellable_for(principal=principal, execution_id=execution_id)
    while row.status not in TERMINAL:
        if (answer := cancel_as_seen(row)) is not None:
            return answer
        row.refresh_from_db()  # it moved between the look and the write: look again
    if row.status == Status.CANCELLED:
        return "cancelled"
    raise AlreadyFinished(execution_id=execution_id, status=row.status)


def cancel_as_seen(row: Execution, *, error_code: str = "cancelled") -> str | None:
    """`cancelled`, `cancelling`, or None where the row is no longer what was seen."""
    if row.status == Status.QUEUED:
        cancelled = backlog.cancel_queued(execution_id=row.pk, error_code=error_code, session_id=row.session_id)
        return "cancelled" if cancelled and _cancelled(row, lease=None) else None
    if row.started_at is not None:
        return "cancelling" if backlog.request_cancel(execution_id=row.pk) else None
    token = row.slot_token
    if token is None or not backlog.cancel_granted(execution_id=row.pk, token=token, error_code=error_code, session_id=row.session_id):
        return None
    lease = Lease(agent=row.agent_name, execution_id=row.pk, token=token, timeout_seconds=row.timeout_seconds)
    return "cancelled" if _cancelled(row, lease=lease) else None


def _cancelled(row: Execution, *, lease: Lease | None) -> bool:
    events.publish(ExecutionFinished(execution_id=row.pk, agent=row.agent_name))
    start_opened(lambda: manager.withdraw(agent_id=row.agent_id, lease=lease))
    return True
