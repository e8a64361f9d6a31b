"""Bodies of tasks, executions and capacity."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backlog.models import Execution, ExecutionEvent, Status, Trigger
from backlog.selectors import PREVIEW_CHARACTERS
from capacity.gate import Gate
from capacity.selectors import Load
from core import api
from fleet.first_values import MAX_CEILING
from fleet.models import MAX_BACKLOG_DEPTH, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS, OnFull

from .standing import Standing, WaitingFor

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


class NothingIn(api.StrictSerializer):
    """A body that may be left out, and has no fields."""


class SlotReleaseIn(api.StrictSerializer):
    """Which execution's slot is to be given back."""

    execution_id = api.UUIDField()
    force = api.BooleanField(required=False, help_text="Free it at once, though its work may go on.")


class SourceOut(serializers.Serializer):
    """Who submitted an execution."""

    kind = serializers.ChoiceField(choices=["user", "agent", "system"])
    name = serializers.CharField()


class UsageOut(serializers.Serializer):
    """What a run says it has used."""

    input_tokens = serializers.IntegerField(allow_null=True)
    output_tokens = serializers.IntegerField(allow_null=True)
    cost_usd = serializers.FloatField(allow_null=True)


class InLine:
    """The fields that say where an execution stands in line: read from the `standings` in the context."""

    context: dict[str, Any]

    def get_queue_position(self, row: Execution) -> int | None:
        """1-based; null for one that doesn't wait in line."""
        return self._standing(row).queue_position

    def get_waiting_for(self, row: Execution) -> WaitingFor | None:
        """Null for one whose work has begun or ended."""
        return self._standing(row).waiting_for

    def _standing(self, row: Execution) -> Standing:
        standing: Standing = self.context["standings"][row.pk]
        return standing


class ExecutionOut(InLine, serializers.Serializer):
    """An execution as its readers see it."""

    id = serializers.UUIDField()
    agent_name = serializers.CharField()
    status = serializers.ChoiceField(choices=Status.choices)
    error_code = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()
    message = serializers.CharField()
    response = serializers.CharField(allow_null=True)
    triggered_by = serializers.ChoiceField(choices=Trigger.choices)
    source = serializers.SerializerMethodField()  # type: ignore[assignment]  # declared, it is no attribute of the class
    session_id = serializers.UUIDField(allow_null=True)
    priority = serializers.IntegerField()
    metadata = serializers.DictField()
    retry_of = serializers.UUIDField(source="retry_of_id", allow_null=True)
    continues = serializers.UUIDField(source="continues_id", allow_null=True)
    slot_number = serializers.IntegerField(allow_null=True)
    queue_position = serializers.SerializerMethodField()
    waiting_for = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    queued_at = serializers.DateTimeField()
    dispatched_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    cancel_requested_at = serializers.DateTimeField(allow_null=True)
    duration_ms = serializers.SerializerMethodField()
    timeout_seconds = serializers.IntegerField()
    usage = serializers.SerializerMethodField()

    def get_error_code(self, row: Execution) -> str | None:
        """Null unless it has failed or was cancelled."""
        return row.error_code or None

    def get_error(self, row: Execution) -> str | None:
        """What went wrong, in words."""
        return row.error or None

    def get_source(self, row: Execution) -> dict[str, Any]:
        """Who submitted it."""
        return {"kind": row.source_kind, "name": row.source_name}

    def get_duration_ms(self, row: Execution) -> int | None:
        """From its start to its end; null before, and for one that never started."""
        if row.started_at is None or row.completed_at is None:
            return None
        return max(0, round((row.completed_at - row.started_at).total_seconds() * 1000))

    def get_usage(self, row: Execution) -> dict[str, Any] | None:
        """What the run says it has used; null where it said nothing."""
        cost = None if row.cost_usd is None else float(row.cost_usd)
        usage = {"input_tokens": row.input_tokens, "output_tokens": row.output_tokens, "cost_usd": cost}
        return None if all(value is None for value in usage.values()) else usage


class QueuedOut(InLine, serializers.Serializer):
    """A queued execution as its agent's queue shows it."""

    id = serializers.UUIDField()
    queue_position = serializers.SerializerMethodField()
    queued_at = serializers.DateTimeField()
    priority = serializers.IntegerField()
    message_preview = serializers.SerializerMethodField()
    triggered_by = serializers.ChoiceField(choices=Trigger.choices)
    waiting_for = serializers.SerializerMethodField()

    def get_message_preview(self, row: Execution) -> str:
        """The message's beginning."""
        return row.message[:PREVIEW_CHARACTERS]


class EventOut(serializers.ModelSerializer):
    """One entry of a run's log."""

    data = serializers.JSONField()  # type: ignore[assignment]  # as above

    class Meta:
        model = ExecutionEvent
        fields = ("seq", "type", "data", "at")


class CapacityIn(api.StrictSerializer):
    """New capacity settings; those left out stay."""

    max_parallel_tasks = api.IntegerField(min_value=1, max_value=MAX_CEILING, help_text="At most the ceiling.")
    max_backlog_depth = api.IntegerField(min_value=0, max_value=MAX_BACKLOG_DEPTH, required=False)
    execution_timeout_seconds = api.IntegerField(min_value=MIN_TIMEOUT_SECONDS, max_value=MAX_TIMEOUT_SECONDS, required=False)

    def __init__(self, *args: Any, ceiling: int = MAX_CEILING, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limit: Any = self.fields["max_parallel_tasks"]
        limit.max_value = ceiling


class CeilingIn(api.StrictSerializer):
    """A new ceiling."""

    value = api.IntegerField(min_value=1, max_value=MAX_CEILING)


class CeilingOut(serializers.Serializer):
    """The fleet-wide upper bound of every limit."""

    value = serializers.IntegerField()
    default = serializers.IntegerField()
    min = serializers.IntegerField()
    max = serializers.IntegerField()


class SlotOut(serializers.Serializer):
    """One taken slot."""

    slot_number = serializers.IntegerField()
    execution_id = serializers.UUIDField()
    started_at = serializers.DateTimeField(help_text="When the slot was taken.")
    message_preview = serializers.CharField()
    duration_seconds = serializers.IntegerField()


class CapacityOut(serializers.Serializer):
    """One agent's limits and load, of a `Gate` and the `load` in the context."""

    agent_name = serializers.CharField(source="agent.name")
    max_parallel_tasks = serializers.IntegerField(source="agent.max_parallel_tasks")
    ceiling = serializers.IntegerField()
    effective_max_parallel_tasks = serializers.IntegerField(source="limit")
    active_slots = serializers.SerializerMethodField()
    available_slots = serializers.SerializerMethodField()
    slots = serializers.SerializerMethodField()
    queued = serializers.SerializerMethodField()
    max_backlog_depth = serializers.IntegerField(source="agent.max_backlog_depth")
    execution_timeout_seconds = serializers.IntegerField(source="agent.execution_timeout_seconds")
    paused = serializers.BooleanField()
    limited_by = serializers.SerializerMethodField()
    base_max_parallel_tasks = serializers.IntegerField(source="agent.base_max_parallel_tasks", allow_null=True)
    override_until = serializers.DateTimeField(source="agent.override_until", allow_null=True)
    changed_by = serializers.SerializerMethodField()
    changed_at = serializers.DateTimeField(source="agent.changed_at", allow_null=True)

    @property
    def _load(self) -> Load:
        load: Load = self.context["load"]
        return load

    def get_active_slots(self, _gate: Gate) -> int:
        """As many as `slots` has entries."""
        return len(self._load.slots)

    def get_available_slots(self, gate: Gate) -> int:
        """How many more may start now; never below 0."""
        return max(0, gate.limit - len(self._load.slots))

    @extend_schema_field(SlotOut(many=True))
    def get_slots(self, _gate: Gate) -> Any:
        """The taken slots, by number."""
        return SlotOut(self._load.slots, many=True).data

    def get_queued(self, _gate: Gate) -> int:
        """How many wait in line."""
        return self._load.queued

    @extend_schema_field(serializers.ChoiceField(choices=["paused", "fleet", "ceiling", "override", "owner", "default"]))
    def get_limited_by(self, _gate: Gate) -> str:
        """What sets the limit now."""
        return self._load.limited_by

    def get_changed_by(self, gate: Gate) -> str | None:
        """Who changed a setting last."""
        return gate.agent.changed_by.get_username() if gate.agent.changed_by else None


class MeterOut(serializers.Serializer):
    """One agent's load."""

    max = serializers.IntegerField(help_text="The limit in force.")
    active = serializers.IntegerField()
    queued = serializers.IntegerField()
    paused = serializers.BooleanField()
    version = serializers.IntegerField()
