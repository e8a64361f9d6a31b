"""Bodies of internal endpoints."""

from backlog.models import Trigger
from core import api

from .tasks import TaskIn

#: What a service may say on whose account it submits; the other triggers are Trinity's own to give.
TRIGGERS = [Trigger.MANUAL, Trigger.AGENT, Trigger.MCP, Trigger.SCHEDULE]


class InternalTaskIn(TaskIn):
    """A task that a service submits on somebody's account."""

    agent_name = api.CharField(max_length=63, help_text="Whom it is for.")
    triggered_by = api.ChoiceField(choices=[trigger.value for trigger in TRIGGERS], help_text="What made it.")
    execution_id = api.UUIDField(required=False, help_text="Its id: created once, and answered with after.")
