"""Bodies of executions, their events and their line."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backlog.models import Execution, ExecutionEvent, Status, Trigger
from backlog.selectors import PREVIEW_CHARACTERS
from core import api

from ..standing import Standing, WaitingFor

#: As many as a page of a list has at most.
MOST_IDS = 200


class SourceOut(serializers.Serializer):
    """Who submitted an execution."""

    kind = serializers.ChoiceField(choices=["user", "agent", "system", "public"])
    name = serializers.CharField()


class UsageOut(serializers.Serializer):
    """What a run says it has used."""

    input_tokens = serializers.IntegerField(allow_null=True)
    output_tokens = serializers.IntegerField(allow_null=True)
    cost_usd = serializers.FloatField(allow_null=True)


class StartRangeOut(serializers.Serializer):
    """When an execution should start, as things stand."""

    earliest = serializers.DateTimeField()
    latest = serializers.DateTimeField()


class InLine:
    """The fields that say where an execution stands in line: read from the `standings` in the context."""

    context: dict[str, Any]

    def get_queue_position(self, row: Execution) -> int | None:
        """1-based; null for one that doesn't wait in line."""
        return self._standing(row).queue_position

    @extend_schema_field(serializers.ChoiceField(choices=list(WaitingFor), allow_null=True))
    def get_waiting_for(self, row: Execution) -> WaitingFor | None:
        """Null for one whose work has begun or ended."""
        return self._standing(row).waiting_for

    @extend_schema_field(StartRangeOut(allow_null=True))
    def get_estimated_start(self, row: Execution) -> dict[str, Any] | None:
        """From the agent's last runs; null where too few are known, or what it waits for can't be foreseen."""
        expected = self._standing(row).estimated_start
        return None if expected is None else dict(StartRangeOut(expected).data)

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
    estimated_start = serializers.SerializerMethodField()
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

    @extend_schema_field(SourceOut)
    def get_source(self, row: Execution) -> dict[str, Any]:
        """Who submitted it."""
        return {"kind": row.source_kind, "name": row.source_name}

    def get_duration_ms(self, row: Execution) -> int | None:
        """From its start to its end; null before, and for one that never started."""
        if row.started_at is None or row.completed_at is None:
            return None
        return max(0, round((row.completed_at - row.started_at).total_seconds() * 1000))

    @extend_schema_field(UsageOut(allow_null=True))
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
    estimated_start = serializers.SerializerMethodField()

    def get_message_preview(self, row: Execution) -> str:
        """The message's beginning."""
        return row.message[:PREVIEW_CHARACTERS]


class ManyIn(api.StrictSerializer):
    """Which executions are meant: those that every filter names, and one there must be."""

    status = api.ListField(
        child=api.ChoiceField(choices=Status.choices), min_length=1, max_length=len(Status.values), required=False,
        help_text="Any of these.",
    )  # fmt: skip
    triggered_by = api.ChoiceField(choices=Trigger.choices, required=False)
    session_id = api.UUIDField(required=False)
    agent = api.CharField(max_length=500, required=False, help_text="The agent's name.")
    since = api.DateTimeField(required=False, help_text="Made then or later.")
    until = api.DateTimeField(required=False, help_text="Made before.")
    error_code = api.CharField(max_length=32, required=False, help_text="How it failed.")
    text = api.CharField(max_length=200, required=False, help_text="What the message has in it.")
    mine = api.BooleanField(required=False, help_text="true: only what the caller has submitted.")
    ids = api.ListField(child=api.UUIDField(), min_length=1, max_length=MOST_IDS, required=False)
    dry_run = api.BooleanField(required=False, help_text="true: only tell what would be done.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Nobody means everything by leaving everything out."""
        if not attrs.keys() - {"dry_run"}:
            named = ", ".join(name for name in self.get_fields() if name != "dry_run")
            raise serializers.ValidationError(f"At least one of {named} is required", code="required")
        return attrs


class CancelManyIn(ManyIn):
    """Which executions are to be cancelled; what has ended stays as it is."""


class RetryManyIn(ManyIn):
    """Which executions are to be done again; what goes on, or was done again before, stays as it is."""


class EventOut(serializers.ModelSerializer):
    """One entry of a run's log."""

    data = serializers.JSONField()  # type: ignore[assignment]  # as above

    class Meta:
        model = ExecutionEvent
        fields = ("seq", "type", "data", "at")
