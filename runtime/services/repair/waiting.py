"""Rows in line that wait for nothing any more."""

from backlog import services as backlog
from capacity.manager import CapacityManager
from core.conf import conf

from ... import dispatch
from .journal import Kind, note_row
from .steps import ended

manager = CapacityManager()


def expire_waiting() -> None:
    """Fail what has waited too long."""
    expired = backlog.expire(seconds=conf.expiry_seconds)
    # All are told before the gate is asked, which may be out of reach.
    for row in expired:
        ended(row)
    for agent_id in dict.fromkeys(row.agent_id for row in expired):
        dispatch.start(manager.withdraw(agent_id=agent_id, lease=None))


def repair_sessions() -> None:
    """Let rows start that were kept back for a run of their session though none is left."""
    mended = backlog.mend_sessions()
    for row in mended:
        note_row(Kind.SESSION_WAITED_FOR_NOBODY, execution_id=row.pk, agent=row.agent_name)
    for agent_id in dict.fromkeys(row.agent_id for row in mended):
        dispatch.start(manager.withdraw(agent_id=agent_id, lease=None))
