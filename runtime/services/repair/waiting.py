"""Rows in line that wait for nothing any more."""

from backlog import presence
from backlog import services as backlog
from backlog.models import Execution
from capacity.manager import CapacityManager
from core.conf import conf

from ... import dispatch
from ..controls import cancel_as_seen
from .journal import Kind, note_row
from .steps import each, ended

manager = CapacityManager()


def expire_waiting() -> None:
    """Fail what has waited too long."""
    expired = backlog.expire(seconds=conf.expiry_seconds)
    # All are told before the gate is asked, which may be out of reach.
    for row in expired:
        ended(row)
    for agent_id in dict.fromkeys(row.agent_id for row in expired):
        dispatch.start(manager.withdraw(agent_id=agent_id, lease=None))


def cancel_forsaken() -> None:
    """Cancel what waited only for a caller who has gone without a word: their web process was killed, or cut off."""
    each(presence.forsaken().only("status", "agent_id", "agent_name", "session_id"), _cancel_forsaken)


def _cancel_forsaken(row: Execution) -> None:
    if cancel_as_seen(row) is not None:
        note_row(Kind.CALLER_GONE, execution_id=row.pk, agent=row.agent_name)


def repair_sessions() -> None:
    """Let rows start that were kept back for a run of their session though none is left."""
    mended = backlog.mend_sessions()
    for row in mended:
        note_row(Kind.SESSION_WAITED_FOR_NOBODY, execution_id=row.pk, agent=row.agent_name)
    for agent_id in dict.fromkeys(row.agent_id for row in mended):
        dispatch.start(manager.withdraw(agent_id=agent_id, lease=None))
