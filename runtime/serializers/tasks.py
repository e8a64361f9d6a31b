"""Bodies of tasks."""

from core import api
from fleet.models import MAX_TIMEOUT_SECONDS, OnFull

MAX_MESSAGE_CHARACTERS = 100_000
MAX_METADATA_BYTES = 8 * 1024


class TaskIn(api.StrictSerializer):
    """A task for an agent."""

    message = api.CharField(max_length=MAX_MESSAGE_CHARACTERS, blanks=False, help_text="The task.")
    async_mode = api.BooleanField(required=False, help_text="false (the default): the response is the result; true: return at once.")
    on_full = api.ChoiceField(
        choices=OnFull.values, required=False, help_text="When it can't start now; the default is `queue` when async, `reject` when sync."
    )
    timeout_seconds = api.IntegerField(
        min_value=1,
        max_value=MAX_TIMEOUT_SECONDS,
        required=False,
        help_text="Limit of the run itself; the default, and the most, is the agent's.",
    )
    session_id = api.UUIDField(required=False, help_text="Continue a session.")
    model = api.CharField(max_length=200, allow_blank=True, required=False)
    system_prompt = api.CharField(max_length=100_000, allow_blank=True, required=False)
    allowed_tools = api.ListField(child=api.CharField(max_length=200), max_length=200, required=False)
    max_turns = api.IntegerField(min_value=1, max_value=1000, required=False)
    priority = api.IntegerField(
        min_value=0, max_value=9, required=False, help_text="Higher first within the agent's backlog; 5 by default."
    )
    metadata = api.ObjectField(max_bytes=MAX_METADATA_BYTES, required=False, help_text="Returned as given.")
