"""What each tool does: check its arguments, one call of a service or selector, the body that REST would answer with.

They run on threads that may use the database. One that must wait returns a `Hold`, as a view places it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.utils import timezone

from backlog import selectors as backlog
from backlog.models import LINE, TERMINAL, Execution, Trigger
from capacity.gate import gate_of, gated
from capacity.health import healths
from capacity.selectors import load_of
from core.asgi import Answer, Hold
from fleet import access
from fleet.models import Agent, OnFull
from fleet.principals import Principal
from fleet.selectors import agents_visible_to, fleet_settings
from fleet.serializers import AgentOut
from runtime import selectors, waiting
from runtime.schema.capacity import CapacityChangedOut
from runtime.serializers.capacity import CapacityOut
from runtime.serializers.executions import QueuedOut
from runtime.services import controls, submit
from runtime.services.submit import TaskRequest
from runtime.standing import standings
from runtime.views.preferences import idempotency_with
from runtime.views.tasks import WAIT_FACTOR, accepted

from . import arguments as takes
from .pages import page_of

#: What of a submit is no part of the task: REST has it in the path and a header.
_BESIDE_THE_TASK = {"agent_name", "idempotency_key"}


def list_agents(principal: Principal, arguments: Mapping[str, Any]) -> Answer:
    """A page of the agents that the caller may see, by name."""
    asked = takes.ListAgentsIn.check(arguments)
    agents, following = page_of(agents_visible_to(principal).select_related("owner"), asked, ordering=("name",))
    shown = AgentOut(agents, many=True, context={"health": healths(agents)}).data
    return Answer.json(200, {"results": shown, "next": following})


def get_capacity(principal: Principal, arguments: Mapping[str, Any]) -> Answer:
    """The agent's limits and load."""
    name = takes.GetCapacityIn.check(arguments)["agent_name"]
    agents = gated(Agent.objects.select_related("changed_by").defer("runtime"))
    gate = gate_of(access.agent_for(principal=principal, name=name, verb=access.Verb.READ, queryset=agents))
    return Answer.json(200, CapacityOut(gate, context={"load": load_of(gate, now=timezone.now())}).data)


def submit_task(principal: Principal, arguments: Mapping[str, Any]) -> Answer | Hold:
    """The task, taken; without `async_mode` its result, when it is there."""
    body = takes.SubmitTaskIn.check(arguments)
    name, key, at_once = body.pop("agent_name"), body.pop("idempotency_key", None), body.pop("async_mode", False)
    on_full = OnFull(body.pop("on_full", OnFull.QUEUE if at_once else OnFull.REJECT))
    said = {argument: value for argument, value in arguments.items() if argument not in _BESIDE_THE_TASK}
    idempotency = None if key is None else idempotency_with(key, principal=principal, said=said)
    request = TaskRequest(on_full=on_full, triggered_by=Trigger.MCP, idempotency=idempotency, **body)
    submitted = submit.submit_task(principal=principal, name=name, request=request)
    headers = {"Idempotent-Replayed": "true"} if submitted.replayed else {}
    if at_once:
        return accepted(submitted, position=submitted.queue_position, headers=headers)
    return Hold(
        key=str(submitted.execution_id),
        seconds=WAIT_FACTOR * submitted.timeout_seconds,
        render=waiting.EndOfTask(execution_id=submitted.execution_id, late=partial(_late, headers=headers), headers=headers),
    )


def _late(row: Execution, *, headers: Mapping[str, str]) -> Answer:
    raise waiting.still_going(row, headers=headers)


def get_execution(principal: Principal, arguments: Mapping[str, Any]) -> Answer | Hold:
    """The execution; with `wait` once it has ended, or as it is then."""
    asked = takes.GetExecutionIn.check(arguments)
    row = selectors.execution_for(principal=principal, execution_id=asked["execution_id"])
    if not asked.get("wait") or row.status in TERMINAL:
        return Answer.json(200, waiting.rendered(row))
    return Hold(key=str(row.pk), seconds=asked["wait"], render=waiting.StateOfExecution(execution_id=row.pk))


def cancel_execution(principal: Principal, arguments: Mapping[str, Any]) -> Answer:
    """`cancelled` where it is over now, `cancelling` while its work is being stopped."""
    execution_id = takes.CancelExecutionIn.check(arguments)["execution_id"]
    return Answer.json(200, {"status": controls.cancel_execution(principal=principal, execution_id=execution_id)})


def list_queue(principal: Principal, arguments: Mapping[str, Any]) -> Answer:
    """A page of the agent's line, first in line first."""
    asked = takes.ListQueueIn.check(arguments)
    agent = access.agent_for(principal=principal, name=asked["agent_name"], verb=access.Verb.READ)
    line = backlog.queue_of(agent.pk).select_related("agent").defer("agent__runtime")
    rows, following = page_of(line, asked, ordering=LINE)
    body = {
        "agent_name": agent.name,
        "paused": agent.paused or fleet_settings().paused,
        "depth": backlog.depths([agent.pk]).get(agent.pk, 0),
        "max_backlog_depth": agent.max_backlog_depth,
        "results": QueuedOut(rows, many=True, context={"standings": standings(rows)}).data,
        "next": following,
    }
    return Answer.json(200, body)


def set_capacity(principal: Principal, arguments: Mapping[str, Any]) -> Answer:
    """The new limit, and whatever else was sent."""
    changes = takes.SetCapacityIn.check(arguments)
    agent = controls.set_limit(principal=principal, name=changes.pop("agent_name"), changes=changes)
    return Answer.json(200, CapacityChangedOut({"message": "Capacity updated", "agent_name": agent.name, **changes}).data)
