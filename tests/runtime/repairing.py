"""What the tests of repair do and look at: a run begun and left alone, a lease that ended, the gate and the logs afterwards."""

import json

import redis

from backlog.models import Execution, ExecutionEvent
from capacity import keys, slots
from fleet.models import Agent, OnFull
from fleet.principals import Principal
from runtime import dispatch
from runtime.services import runs
from runtime.services.submit import Submitted, TaskRequest, submit_task

QUEUE = "celery:trinity"


def submit(agent: Agent, message: str = "hello") -> Submitted:
    """Submit as the agent's owner."""
    asked = TaskRequest(message=message, on_full=OnFull.QUEUE)
    return submit_task(principal=Principal.of_user(agent.owner), name=agent.name, request=asked)


def row(submitted: Submitted) -> Execution:
    """The row as it is now."""
    return Execution.objects.get(pk=submitted.execution_id)


def begin(submitted: Submitted) -> runs.Begun:
    """Start the granted row and die before its work is watched: nobody renews its lease."""
    granted = row(submitted)
    assert granted.slot_token is not None
    begun = runs.begin_run(execution_id=granted.pk, token=granted.slot_token)
    assert begun is not None
    return begun


def end_lease(valkey: redis.Redis, submitted: Submitted) -> None:
    """As if the holder's lease had ended a second ago."""
    now = valkey.time()[0]  # type: ignore[index]
    valkey.zadd(keys.leases(), {f"{submitted.agent.name}:{submitted.execution_id}": now - 1})


def held(agent: Agent) -> list[str]:
    """Ids of the executions that hold a slot of the agent."""
    return [str(holder.execution_id) for holder in slots.state(agent.name).holders]


def told(submitted: Submitted) -> list[tuple[str, dict[str, object]]]:
    """What repair has added to the execution's log: kinds, and what was seen."""
    log = ExecutionEvent.objects.filter(execution_id=submitted.execution_id, type="repair").order_by("seq")
    return [(event.data["kind"], event.data["seen"]) for event in log]


def kinds(submitted: Submitted) -> list[str]:
    """The kinds of its repairs, in their order."""
    return [kind for kind, _ in told(submitted)]


def messages(valkey: redis.Redis, task: str = dispatch.RUN_EXECUTION) -> int:
    """How many messages of that task wait at the broker."""
    waiting: list[bytes] = valkey.lrange(QUEUE, 0, -1)  # type: ignore[assignment]
    return sum(json.loads(message)["headers"]["task"] == task for message in waiting)


def hear_all(valkey: redis.Redis) -> None:
    """As if workers had taken every message: they have free threads."""
    valkey.delete(QUEUE)
