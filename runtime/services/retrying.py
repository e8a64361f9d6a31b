"""Doing many finished executions again, of any agents: each is a submit of its own, the oldest first."""

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.db.models.expressions import Exists, OuterRef

from backlog.drafts import IdempotencyRequest
from backlog.errors import CapacityFull
from backlog.models import TERMINAL, Execution, Status
from core.errors import Conflict, Forbidden, Invalid, NotFound, Unprocessable
from fleet.principals import Principal

from ..selectors import executions_for, matching
from .retries import retry_execution

#: Submitted in one call, and tried.
MOST_RETRIED, MOST_TRIED = 100, 500
#: What succeeded is done again only where a filter says so.
_UNLUCKY = (Status.FAILED, Status.CANCELLED)
_REFUSALS = (CapacityFull, Conflict, Forbidden, Invalid, NotFound, Unprocessable)


@dataclass(frozen=True, kw_only=True)
class Retried:
    """How many were submitted anew, how many could not be, and how many were not tried yet."""

    retried: int
    refused: int
    left: int


def retryable(*, principal: Principal, lookups: dict[str, Any]) -> Retried:
    """What `retry_matching` would try, in as many calls as it takes."""
    return Retried(retried=_finished(principal, lookups).count(), refused=0, left=0)


def retry_matching(*, principal: Principal, lookups: dict[str, Any]) -> Retried:
    """Submit anew those of the finished executions that match, as the caller's own; one that was done again before is passed over.

    A call does a hundred of them; the next one goes on where it ended. Two at once do none twice.
    """
    asked = _finished(principal, lookups)
    seen = list(asked.order_by("created_at", "id").values_list("pk", "agent_id")[: MOST_TRIED + 1])
    retried, refused, tried, full = 0, 0, 0, set()
    for execution_id, agent_id in seen[:MOST_TRIED]:
        if retried == MOST_RETRIED:
            break
        tried += 1
        try:
            if agent_id in full:
                refused += 1
            elif _retry(principal, execution_id):
                retried += 1
        except _REFUSALS as refusal:
            refused += 1
            if isinstance(refusal, CapacityFull):
                full.add(agent_id)
    return Retried(retried=retried, refused=refused, left=asked.count() - refused if tried < len(seen) else 0)


def _finished(principal: Principal, lookups: dict[str, Any]) -> QuerySet[Execution]:
    again = Execution.objects.filter(retry_of=OuterRef("pk"))
    wanted = set(lookups.get("status__in", _UNLUCKY)) & set(TERMINAL)
    rows = executions_for(principal).filter(~Exists(again), status__in=wanted)
    return matching(rows, lookups)


def _retry(principal: Principal, execution_id: uuid.UUID) -> bool:
    """Whether this call has submitted it: of two at once, one has."""
    key = f"retry-many:{execution_id}"
    once = IdempotencyRequest(caller=principal.caller, key=key, body_digest=hashlib.sha256(key.encode()).hexdigest())
    return not retry_execution(principal=principal, execution_id=execution_id, idempotency=once).replayed
