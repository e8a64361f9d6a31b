"""Execution rows, their events, and the keys that make a submit repeatable."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from core.ids import new_id


class Status(models.TextChoices):
    """Where an execution stands. A terminal status never changes."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = (Status.SUCCESS, Status.FAILED, Status.CANCELLED)


class Trigger(models.TextChoices):
    """What submitted an execution."""

    MANUAL = "manual"
    AGENT = "agent"
    MCP = "mcp"
    SCHEDULE = "schedule"
    PUBLIC = "public"
    CHAT = "chat"
    APPROVAL = "approval"
    RETRY = "retry"


#: The order of a backlog: the front first, then the higher priority, then the longer wait.
LINE = ("-front", "-priority", "queued_at", "id")


class Execution(models.Model):
    """One task submitted to an agent.

    `slot_token` is the fence: not null means this row holds a slot, whatever its status, and every write of a run names
    it. `running` with `started_at` null holds a slot and waits for a worker. `startable` is whether a queued row could
    start but for a slot: the first unfinished one of its session, or one without a session. One with a `seen_at` also needs a
    caller who was seen lately (`presence`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    agent = models.ForeignKey("fleet.Agent", on_delete=models.CASCADE, related_name="executions")
    agent_name = models.CharField(max_length=63)
    status = models.CharField(max_length=9, choices=Status)
    startable = models.BooleanField(default=True)
    slot_token = models.UUIDField(null=True, blank=True)
    slot_number = models.PositiveSmallIntegerField(null=True, blank=True)

    message = models.TextField()
    model = models.CharField(max_length=200, blank=True, default="")
    system_prompt = models.TextField(blank=True, default="")
    allowed_tools = models.JSONField(null=True, blank=True)
    max_turns = models.PositiveSmallIntegerField(null=True, blank=True)
    timeout_seconds = models.PositiveIntegerField()
    metadata = models.JSONField(default=dict)

    front = models.BooleanField(default=False)
    priority = models.PositiveSmallIntegerField(default=5)
    session = models.ForeignKey("fleet.Session", null=True, blank=True, on_delete=models.SET_NULL, related_name="executions")
    retry_of = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="retries")
    continues = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="continued_by")
    triggered_by = models.CharField(max_length=8, choices=Trigger, default=Trigger.MANUAL)
    source_kind = models.CharField(max_length=16, default="user")
    source_name = models.CharField(max_length=150, default="")
    #: Who may cancel it beside the agent's owner.
    submitted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    submitted_key = models.ForeignKey("fleet.ApiKey", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    #: The public link that it came by. Without an index: nobody looks for a link's executions, only whether one is its own.
    public_link = models.ForeignKey("fleet.PublicLink", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False)

    response = models.TextField(null=True, blank=True)  # noqa: DJ001 - null: no response, "": an empty one
    error_code = models.CharField(max_length=32, blank=True, default="")
    error = models.TextField(blank=True, default="")
    input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    cost_usd = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True)

    created_at = models.DateTimeField(db_default=Now(), editable=False)
    #: When it took its place in line; never changes. Equals `created_at` for one that started at once.
    queued_at = models.DateTimeField(db_default=Now(), editable=False)
    #: When it was last granted a slot, and how often its start was published since.
    granted_at = models.DateTimeField(null=True, blank=True)
    dispatched_at = models.DateTimeField(null=True, blank=True)
    dispatches = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    #: When a caller was last seen to wait, for one that waits only while they do (chat).
    seen_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["session"],
                condition=Q(session__isnull=False) & (Q(status=Status.RUNNING) | Q(slot_token__isnull=False)),
                name="execution_one_run_a_session",
            ),
            models.UniqueConstraint(fields=["slot_token"], condition=Q(slot_token__isnull=False), name="execution_slot_token_unique"),
            models.CheckConstraint(condition=Q(status__in=Status.values), name="execution_status_known"),
            # A row that runs holds a slot, one in line holds none.
            models.CheckConstraint(condition=~Q(status=Status.RUNNING) | Q(slot_token__isnull=False), name="execution_running_holds_slot"),
            models.CheckConstraint(
                condition=~Q(status=Status.QUEUED) | Q(slot_token__isnull=True, started_at__isnull=True), name="execution_queued_holds_none"
            ),
            models.CheckConstraint(condition=~Q(status__in=TERMINAL) | Q(completed_at__isnull=False), name="execution_terminal_has_end"),
        ]
        indexes: ClassVar = [
            models.Index(
                F("agent"), F("front").desc(), F("priority").desc(), F("queued_at"), F("id"),
                condition=Q(status=Status.QUEUED, startable=True), name="execution_line",
            ),
            models.Index(fields=["agent"], condition=Q(status=Status.QUEUED), name="execution_queued"),
            models.Index(fields=["seen_at"], condition=Q(status=Status.QUEUED, seen_at__isnull=False), name="execution_attended"),
            models.Index(fields=["agent", "slot_token"], condition=Q(slot_token__isnull=False), name="execution_holders"),
            models.Index(F("agent"), F("created_at").desc(), F("id").desc(), name="execution_newest_of_agent"),
            models.Index(F("created_at").desc(), F("id").desc(), name="execution_newest"),
            models.Index(fields=["session", "queued_at"], condition=Q(session__isnull=False), name="execution_of_session"),
            models.Index(
                F("agent"), F("completed_at").desc(), condition=Q(started_at__isnull=False, completed_at__isnull=False),
                name="execution_last_runs",
            ),
            models.Index(
                F("completed_at").desc(), F("queued_at"), F("agent"), condition=Q(completed_at__isnull=False), name="execution_ended",
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.agent_name}/{self.id}"


class ExecutionEvent(models.Model):
    """One entry of a run's ordered log. `seq` counts per session, per execution where there is none."""

    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="events")
    session = models.ForeignKey("fleet.Session", null=True, blank=True, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveBigIntegerField()
    type = models.CharField(max_length=32)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering: ClassVar = ["seq"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["execution", "seq"], name="event_seq_once_an_execution"),
            models.UniqueConstraint(fields=["session", "seq"], condition=Q(session__isnull=False), name="event_seq_once_a_session"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id}#{self.seq} {self.type}"


class IdempotencyKey(models.Model):
    """A caller's `Idempotency-Key` for one agent, and the execution it made. Inserted with it in one transaction."""

    caller = models.CharField(max_length=64)
    agent = models.ForeignKey("fleet.Agent", on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    body_digest = models.CharField(max_length=64)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="idempotency_keys")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["caller", "agent", "key"], name="idempotency_key_once")]

    def __str__(self) -> str:
        return self.key
