"""What a new fleet starts with; beside the models, which can't be imported before the apps are loaded."""

from typing import Any

from core.conf import conf

MAX_CEILING = 32
MAX_CAP = 100_000


def fleet_values() -> dict[str, Any]:
    """The columns of the one row of fleet-wide settings, as the environment names them."""
    return {
        "max_parallel_tasks_ceiling": min(MAX_CEILING, conf.max_parallel_tasks_ceiling),
        "max_concurrent_tasks": min(MAX_CAP, conf.max_concurrent_tasks) or None,
    }
