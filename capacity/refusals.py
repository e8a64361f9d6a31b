"""What a refused caller needs to try again: the load, and when a place is expected to free.

Nothing here is read for a request that is accepted.
"""

from backlog import prospects
from backlog import selectors as backlog
from backlog.errors import CapacityFull
from backlog.forecast import Prospect, retry_seconds
from backlog.prospects import Known

from . import slots
from .errors import AtCapacity, FleetAtCapacity, SessionBusy
from .gate import Gate

_NOTHING = Known(runs=[], ages=[], startable=0)


def measured(refusal: CapacityFull, gate: Gate) -> CapacityFull:
    """The refusal with the load now and its `retry_after`; raises `SlotsUnavailable`."""
    known = prospects.known_of([gate.agent.pk]).get(gate.agent.pk, _NOTHING)
    if isinstance(refusal, FleetAtCapacity):
        refusal.data["running"] = slots.fleet_count()
        refusal.retry_after = _until_the_fleet_has_room(gate, known)
        return refusal
    refusal.data |= {
        "active_slots": slots.states([gate.agent.name])[gate.agent.name].active,
        "max_parallel_tasks": gate.limit,
        "queued": backlog.depths([gate.agent.pk]).get(gate.agent.pk, 0),
        "max_backlog_depth": gate.agent.max_backlog_depth,
    }
    if isinstance(refusal, SessionBusy):
        refusal.retry_after = _until_the_session_is_free(refusal, gate, known)
    else:
        refusal.retry_after = _until_room(refusal, gate, known)
    return refusal


def _until_room(refusal: CapacityFull, gate: Gate, known: Known) -> int:
    """Whoever doesn't wait in line comes after all who do; a place in line frees with the next start."""
    own = Prospect(runs=known.runs, ages=known.ages, limit=gate.limit, cap_seconds=gate.agent.execution_timeout_seconds)
    return retry_seconds(own, place=known.startable + 1 if isinstance(refusal, AtCapacity) else 1)


def _until_the_fleet_has_room(gate: Gate, known: Known) -> int:
    """By the agent's own run times: to read those of the whole fleet would be a long look."""
    fleet = Prospect(runs=known.runs, ages=prospects.ages_in_fleet(), limit=gate.fleet_limit or 1)
    return retry_seconds(fleet, place=prospects.startable_in_fleet() + 1)


def _until_the_session_is_free(refusal: SessionBusy, gate: Gate, known: Known) -> int:
    """Its tasks run one after the other, as if it had one slot."""
    busy = prospects.session_load(refusal.data["session_id"])
    if busy.ids:
        refusal.data["execution_id"] = busy.ids[0]
    own = Prospect(runs=known.runs, ages=busy.ages, limit=1, cap_seconds=gate.agent.execution_timeout_seconds)
    return retry_seconds(own, place=len(busy.ids) - len(busy.ages) + 1)
