"""Bodies of schedules and their firings."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core import api
from fleet.models import MAX_TIMEOUT_SECONDS

from ..models import Firing, FiringOutcome, Schedule
from ..schedule_selectors import Made
from .tasks import MAX_MESSAGE_CHARACTERS

MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 10, 366 * 86_400


class ScheduleIn(api.StrictSerializer):
    """A new schedule: `cron` or `interval_seconds`, one of them."""

    name = api.CharField(max_length=100, blanks=False)
    message = api.CharField(max_length=MAX_MESSAGE_CHARACTERS, blanks=False, help_text="The task.")
    cron = api.CharField(
        max_length=100, required=False, allow_null=True, help_text="Minute, hour, day of month, month, day of week: `0 9 * * 1-5`."
    )
    interval_seconds = api.IntegerField(
        min_value=MIN_INTERVAL_SECONDS, max_value=MAX_INTERVAL_SECONDS, required=False, allow_null=True, help_text="Counted from its start."
    )
    timezone = api.CharField(max_length=64, required=False, help_text="Of the IANA database, for `cron`; UTC by default.")
    enabled = api.BooleanField(required=False, help_text="true by default.")
    timeout_seconds = api.IntegerField(
        min_value=1,
        max_value=MAX_TIMEOUT_SECONDS,
        required=False,
        allow_null=True,
        help_text="Limit of each run; may be more than the agent's, which is the default.",
    )


class SchedulePatchIn(ScheduleIn):
    """Changes of a schedule; what is left out stays. Of `cron` and `interval_seconds` one replaces the other."""

    name = api.CharField(max_length=100, blanks=False, required=False)
    message = api.CharField(max_length=MAX_MESSAGE_CHARACTERS, blanks=False, required=False)


class FiringOut(serializers.Serializer):
    """One due time, and what became of it; what it has made is read from `made` in the context."""

    due_at = serializers.DateTimeField()
    outcome = serializers.ChoiceField(
        choices=FiringOutcome.choices,
        help_text="`submitted`; `pending`: tried again; `missed`: not accepted until the next; `refused`: may not be run.",
    )
    reason = serializers.SerializerMethodField()
    skipped = serializers.IntegerField(help_text="Due times before it that went by while nothing ran here; counted to 1000.")
    execution_id = serializers.SerializerMethodField()
    execution_status = serializers.SerializerMethodField()

    def get_reason(self, firing: Firing) -> str | None:
        """The code of what stood in its way."""
        return firing.reason or None

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_execution_id(self, firing: Firing) -> str | None:
        """Null unless it was submitted."""
        made = self._made(firing).execution_id
        return None if made is None else str(made)

    def get_execution_status(self, firing: Firing) -> str | None:
        """Null also where the execution is gone by now."""
        return self._made(firing).status

    def _made(self, firing: Firing) -> Made:
        made: Made = self.context["made"][firing.pk]
        return made


class ScheduleOut(serializers.Serializer):
    """A schedule as the agent's readers see it; its last firing is read from `last` in the context."""

    id = serializers.UUIDField()
    agent_name = serializers.CharField(source="agent.name")
    name = serializers.CharField()
    message = serializers.CharField()
    cron = serializers.SerializerMethodField()
    interval_seconds = serializers.IntegerField(allow_null=True)
    timezone = serializers.CharField()
    enabled = serializers.BooleanField()
    timeout_seconds = serializers.IntegerField(allow_null=True)
    made_by = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    next_run_at = serializers.DateTimeField(source="next_due_at", allow_null=True)
    last_firing = serializers.SerializerMethodField()

    def get_cron(self, schedule: Schedule) -> str | None:
        """Null for one at an interval."""
        return schedule.cron or None

    def get_made_by(self, schedule: Schedule) -> str | None:
        """The user name of whoever made or changed it last: its firings are submitted as theirs."""
        return None if schedule.made_by is None else schedule.made_by.get_username()

    @extend_schema_field(FiringOut(allow_null=True))
    def get_last_firing(self, schedule: Schedule) -> dict[str, Any] | None:
        """Null for one that never came due."""
        firing = self.context["last"].get(schedule.pk)
        return None if firing is None else FiringOut(firing, context=self.context).data
