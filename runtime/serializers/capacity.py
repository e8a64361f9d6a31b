"""Bodies of limits and load."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from capacity.gate import Gate
from capacity.selectors import Load
from core import api
from fleet.first_values import MAX_CAP, MAX_CEILING
from fleet.models import MAX_BACKLOG_DEPTH, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS, OnFull
from fleet.overrides import LONGEST_DAYS


class CapField(api.IntegerField):
    """Null is a value here."""

    def expected(self) -> str:
        return super().expected().replace("must be", "must be null or", 1)


class CapacityIn(api.StrictSerializer):
    """New capacity settings; those left out stay, but for an override: a limit sent without `override_until` is the lasting one."""

    max_parallel_tasks = api.IntegerField(min_value=1, max_value=MAX_CEILING, help_text="At most the ceiling.")
    max_backlog_depth = api.IntegerField(min_value=0, max_value=MAX_BACKLOG_DEPTH, required=False)
    execution_timeout_seconds = api.IntegerField(min_value=MIN_TIMEOUT_SECONDS, max_value=MAX_TIMEOUT_SECONDS, required=False)
    override_until = api.DateTimeField(
        required=False,
        allow_null=True,
        help_text=f"When the former limit returns by itself: within {LONGEST_DAYS} days. Null as left out: the new one stays.",
    )

    def __init__(self, *args: Any, ceiling: int = MAX_CEILING, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limit: Any = self.fields["max_parallel_tasks"]
        limit.max_value = ceiling


class CeilingIn(api.StrictSerializer):
    """A new ceiling."""

    value = api.IntegerField(min_value=1, max_value=MAX_CEILING)


class CapIn(api.StrictSerializer):
    """A new cap of the fleet; `on_full` left out stays."""

    value = CapField(min_value=1, max_value=MAX_CAP, allow_null=True, help_text="Null: no cap.")
    on_full = api.ChoiceField(choices=OnFull.values, required=False, help_text="What becomes of tasks that would wait at the cap.")


class CapOut(serializers.Serializer):
    """How many slots the whole fleet may hold, and what becomes of tasks at that cap."""

    value = serializers.IntegerField(source="max_concurrent_tasks", allow_null=True)
    on_full = serializers.ChoiceField(choices=OnFull.values)


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
