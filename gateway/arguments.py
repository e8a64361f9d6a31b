"""Arguments of the tools: the REST bodies, and beside them what REST has in its paths, queries and headers."""

from typing import Any

from core import api
from core.api.pagination import DEFAULT_LIMIT, MAX_LIMIT
from fleet.selectors import ceiling
from runtime.serializers.capacity import CapacityIn
from runtime.serializers.tasks import TaskIn
from runtime.views.executions import LONGEST_WAIT_SECONDS


class ListAgentsIn(api.StrictSerializer):
    """A page of a list."""

    limit = api.IntegerField(min_value=1, max_value=MAX_LIMIT, required=False, help_text=f"Rows a page; {DEFAULT_LIMIT} by default.")
    cursor = api.CharField(max_length=2000, required=False, help_text="From `next`: the page that follows.")


class ListQueueIn(ListAgentsIn):
    """A page of one agent's line."""

    agent_name = api.CharField(help_text="Whose line it is.")


class GetCapacityIn(api.StrictSerializer):
    """One agent."""

    agent_name = api.CharField(help_text="Which agent.")


class SubmitTaskIn(TaskIn):
    """A task, whom it is for, and the key under which it may be sent again."""

    agent_name = api.CharField(help_text="Whom it is for.")
    idempotency_key = api.CharField(
        allow_blank=True,
        required=False,
        help_text="1 to 255 visible ASCII characters, kept for a day: the same call again answers with the same execution.",
    )


class GetExecutionIn(api.StrictSerializer):
    """One execution, and how long to wait for its end."""

    execution_id = api.UUIDField(help_text="As `submit_task` answered.")
    wait = api.IntegerField(
        min_value=0,
        max_value=LONGEST_WAIT_SECONDS,
        required=False,
        help_text="Answer once it has ended, at the latest after so many seconds; 0 by default.",
    )


class CancelExecutionIn(api.StrictSerializer):
    """One execution."""

    execution_id = api.UUIDField(help_text="Which execution.")


class SetCapacityIn(CapacityIn):
    """New capacity settings of one agent; those left out stay."""

    agent_name = api.CharField(help_text="Which agent.")

    @classmethod
    def check(cls, data: Any, **kwargs: Any) -> dict[str, Any]:
        """`data`, checked; its limit against the ceiling of the moment."""
        return super().check(data, ceiling=ceiling(), **kwargs)
