"""Schedules, and a row for each time that one of them came due."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from core.ids import new_id

from .due_times import Timing


class Schedule(models.Model):
    """A task that an agent is given again and again, by a cron in its time zone or at an interval.

    `next_due_at` is null while it is disabled, and where it never comes due again. Its firings are submitted as `made_by`.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    agent = models.ForeignKey("fleet.Agent", on_delete=models.CASCADE, related_name="schedules")
    name = models.CharField(max_length=100)
    message = models.TextField()
    cron = models.CharField(max_length=100, blank=True, default="")
    interval_seconds = models.PositiveIntegerField(null=True, blank=True)
    timezone = models.CharField(max_length=64, default="UTC")
    enabled = models.BooleanField(default=True)
    timeout_seconds = models.PositiveIntegerField(null=True, blank=True)
    #: Whoever made it or changed it last.
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    #: Where intervals are counted from.
    anchor_at = models.DateTimeField()
    next_due_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering: ClassVar = ["name", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "name"], name="schedule_name_once_an_agent"),
            models.CheckConstraint(
                condition=Q(cron="", interval_seconds__gte=1) | (~Q(cron="") & Q(interval_seconds__isnull=True)),
                name="schedule_cron_or_interval",
            ),
            models.CheckConstraint(condition=Q(enabled=True) | Q(next_due_at__isnull=True), name="schedule_disabled_never_due"),
        ]
        indexes: ClassVar = [models.Index(fields=["next_due_at"], condition=Q(next_due_at__isnull=False), name="schedule_due")]

    def __str__(self) -> str:
        return self.name

    @property
    def timing(self) -> Timing:
        """When it comes due."""
        return Timing(cron=self.cron, interval_seconds=self.interval_seconds, timezone=self.timezone, anchor=self.anchor_at)


class FiringOutcome(models.TextChoices):
    """What became of a due time. Pending ones are submitted by the next pass."""

    PENDING = "pending"
    SUBMITTED = "submitted"
    MISSED = "missed"
    REFUSED = "refused"


class Firing(models.Model):
    """One due time of a schedule, and the id of the execution that it makes, known before there is one.

    `reason` is the code of what stood in its way last; `skipped` counts the due times before this one that went by while
    nobody looked, at most `due_times.MOST_COUNTED`.
    """

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="firings")
    due_at = models.DateTimeField()
    #: No foreign key: it is submitted under this id until the execution is there, and outlives it.
    execution_id = models.UUIDField(unique=True, default=new_id, editable=False)
    outcome = models.CharField(max_length=9, choices=FiringOutcome, default=FiringOutcome.PENDING)
    reason = models.CharField(max_length=32, blank=True, default="")
    skipped = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering: ClassVar = ["-due_at", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["schedule", "due_at"], name="firing_once_a_due_time"),
            # The next due time makes one obsolete that could not be submitted until then.
            models.UniqueConstraint(fields=["schedule"], condition=Q(outcome=FiringOutcome.PENDING), name="firing_one_pending"),
            models.CheckConstraint(condition=Q(outcome__in=FiringOutcome.values), name="firing_outcome_known"),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} at {self.due_at:%Y-%m-%d %H:%M:%S}"
