"""The tools that there are: their names, what is said of them, and who is shown them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rest_framework.serializers import BaseSerializer

from core.asgi import Answer, Hold
from fleet.principals import Principal
from runtime.schema.capacity import CapacityChangedOut
from runtime.schema.executions import CancelOut
from runtime.schema.tasks import AcceptedOut
from runtime.serializers.capacity import CapacityOut
from runtime.serializers.executions import ExecutionOut

from . import arguments, bodies, tools
from .schemas import input_schema, output_schema


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool. The hints are MCP's: `destructive` of one that takes away or overwrites, `idempotent` where twice is as once."""

    run: Callable[[Principal, Mapping[str, Any]], Answer | Hold]
    title: str
    description: str
    takes: type[BaseSerializer]
    gives: tuple[type[BaseSerializer], ...]
    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True
    #: Whether it reaches beyond Trinity: an agent may do anything.
    open_world: bool = False
    #: Shown to people; whoever else calls it is refused.
    personal: bool = False

    @property
    def name(self) -> str:
        """As it is called."""
        return self.run.__name__

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """Of its arguments."""
        return input_schema(self.takes)

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """Of its result where it succeeds."""
        return output_schema(*self.gives)


_ALL = (
    Tool(
        run=tools.list_agents,
        title="List agents",
        description="The agents you may submit tasks to, by name, a page at a time.",
        takes=arguments.ListAgentsIn,
        gives=(bodies.AgentCursorPageOut,),
    ),
    Tool(
        run=tools.get_capacity,
        title="Look at an agent's capacity",
        description="How many tasks an agent may run at once, which run now, how many wait in line, and what limits it.",
        takes=arguments.GetCapacityIn,
        gives=(CapacityOut,),
    ),
    Tool(
        run=tools.submit_task,
        title="Submit a task",
        description=(
            "Give an agent a task. By default the call waits for the result, and is refused when no slot is free. With `async_mode` it "
            "returns at once with an `execution_id` for `get_execution`, and the task waits in line when it can't start yet."
        ),
        takes=arguments.SubmitTaskIn,
        gives=(ExecutionOut, AcceptedOut),
        read_only=False,
        idempotent=False,
        open_world=True,
    ),
    Tool(
        run=tools.get_execution,
        title="Look at an execution",
        description="A task's state, its place in line, and its result once it has ended. `wait` holds the call until then.",
        takes=arguments.GetExecutionIn,
        gives=(ExecutionOut,),
    ),
    Tool(
        run=tools.cancel_execution,
        title="Cancel an execution",
        description="Take one task out of the line, or stop its run. `cancelling`: the stop was asked for and is not confirmed yet.",
        takes=arguments.CancelExecutionIn,
        gives=(CancelOut,),
        read_only=False,
        destructive=True,
    ),
    Tool(
        run=tools.list_queue,
        title="Look at an agent's line",
        description="The tasks that wait for an agent, first in line first, each with what it waits for and when it should start.",
        takes=arguments.ListQueueIn,
        gives=(bodies.QueueCursorPageOut,),
    ),
    Tool(
        run=tools.set_capacity,
        title="Change an agent's capacity",
        description="Set how many tasks an agent may run at once. A raise starts what waits; a cut stops nothing. Owners only, in person.",
        takes=arguments.SetCapacityIn,
        gives=(CapacityChangedOut,),
        read_only=False,
        destructive=True,
        personal=True,
    ),
)
TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ALL}


def shown_to(principal: Principal) -> list[Tool]:
    """The tools that are of use to `principal`."""
    return [tool for tool in TOOLS.values() if principal.is_person or not tool.personal]
