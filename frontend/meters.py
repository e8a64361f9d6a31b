"""What the relay asks the rooms below, each in one call on its thread."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db import Error

from capacity import selectors, slots
from core.errors import Unavailable
from core.redis import RedisError
from fleet.models import Agent
from fleet.selectors import living_agents

from .frames import Value

#: What a read raises while a store can't be asked.
UNREADABLE = (Unavailable, Error, RedisError)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The living agents' names, and those whose values are not as they were shown."""

    living: frozenset[str]
    differing: frozenset[str]


def values_of(names: Collection[str]) -> dict[str, Value]:
    """The living agents' meters by name; raises one of `UNREADABLE`."""
    return {name: meter.as_dict() for name, meter in selectors.meters(_agents(names)).items()}


def unknown_values_of(names: Collection[str]) -> dict[str, Value]:
    """Meters without their load, for while the slot store can't be asked: unknown, not idle."""
    return {
        agent.name: {"max": agent.max_parallel_tasks, "active": None, "queued": None, "paused": agent.paused, "version": 0}
        for agent in _agents(names)
    }


def compare(shown: dict[str, Value]) -> Comparison:
    """How the meters differ from `shown`.

    A meter that changed without a step of its version (a lost step, an emptied store) gets one here: no client takes a
    value under a version it has already.
    """
    now = values_of(shown)
    differing = {name for name, value in now.items() if value != shown[name]}
    slots.step_version([name for name in differing if now[name]["version"] <= shown[name]["version"]])
    return Comparison(living=frozenset(living_agents().values_list("name", flat=True)), differing=frozenset(differing))


def _agents(names: Collection[str]) -> list[Agent]:
    # The settings of the runtimes are encrypted, and of no use here.
    return list(living_agents().filter(name__in=list(names)).only("name", "max_parallel_tasks", "paused"))
