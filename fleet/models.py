"""Agents and what belongs to them: owners, shares, sessions, API keys, fleet-wide settings, audit."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from .first_values import MAX_CAP, MAX_CEILING
from .secrets import EncryptedJSONField

DEFAULT_MAX_PARALLEL_TASKS = 3
DEFAULT_MAX_BACKLOG_DEPTH = 50
DEFAULT_EXECUTION_TIMEOUT_SECONDS = 900
MAX_BACKLOG_DEPTH = 10_000
MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 60, 7200


class RuntimeKind(models.TextChoices):
    """How an agent is reached."""

    HTTP = "http"
    COMMAND = "command"
    LLM = "llm"


class Agent(models.Model):
    """A named runtime that does work, and its owner's limits for it.

    `runtime` is the kind's settings, encrypted at rest: http `{url, headers}`, command `{argv, cwd, env}`, llm
    `{base_url, model, api_key, system_prompt}`. A deleted agent keeps its row; its name is free again.
    """

    name = models.CharField(max_length=63)
    description = models.TextField(blank=True, default="")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="agents")
    runtime_kind = models.CharField(max_length=16, choices=RuntimeKind)
    runtime = EncryptedJSONField(default=dict)
    max_parallel_tasks = models.PositiveSmallIntegerField(default=DEFAULT_MAX_PARALLEL_TASKS)
    max_backlog_depth = models.PositiveIntegerField(default=DEFAULT_MAX_BACKLOG_DEPTH)
    execution_timeout_seconds = models.PositiveIntegerField(default=DEFAULT_EXECUTION_TIMEOUT_SECONDS)
    paused = models.BooleanField(default=False)
    #: While an override lasts, the limit to go back to, and when.
    base_max_parallel_tasks = models.PositiveSmallIntegerField(null=True, blank=True)
    override_until = models.DateTimeField(null=True, blank=True)
    settings_version = models.PositiveBigIntegerField(default=1)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(null=True, blank=True)
    #: When one of its waiting rows was last given a place while the fleet had a cap: whose turn it is.
    served_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    #: When the last run of a deleted agent had ended and its keys were removed from the slot store.
    cleared_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["name"], condition=Q(deleted_at__isnull=True), name="agent_name_unique_among_living"),
            models.CheckConstraint(
                condition=Q(max_parallel_tasks__gte=1, max_parallel_tasks__lte=MAX_CEILING), name="agent_limit_in_range"
            ),
            models.CheckConstraint(condition=Q(max_backlog_depth__lte=MAX_BACKLOG_DEPTH), name="agent_depth_in_range"),
            models.CheckConstraint(
                condition=Q(override_until=None, base_max_parallel_tasks=None)
                | Q(override_until__isnull=False, base_max_parallel_tasks__isnull=False),
                name="agent_override_whole",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["override_until"], condition=Q(override_until__isnull=False), name="agent_overrides"),
        ]

    def __str__(self) -> str:
        return self.name


class FormerRuntime(models.Model):
    """How an agent was reached until `replaced_at`. Runs that began before go on there, and may have to be told to end."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="former_runtimes")
    kind = models.CharField(max_length=16, choices=RuntimeKind)
    runtime = EncryptedJSONField()
    replaced_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["agent", "replaced_at"], name="former_runtime_of_agent")]

    def __str__(self) -> str:
        return f"{self.agent} until {self.replaced_at}"


class Share(models.Model):
    """A user who may read, submit to, and cancel their own tasks on somebody else's agent."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="shares")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="shares")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["agent", "user"], name="share_once")]

    def __str__(self) -> str:
        return f"{self.agent} → {self.user}"


class Session(models.Model):
    """A conversation: executions that share context and approvals. Its id is never reused."""

    class State(models.TextChoices):
        """Whether it takes further executions."""

        OPEN = "open"
        CLOSED = "closed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="sessions")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sessions_owned")
    #: The key that began it, if any: keys of agents speak in no session but their own.
    key = models.ForeignKey("ApiKey", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="sessions")
    title = models.CharField(max_length=200, blank=True, default="")
    state = models.CharField(max_length=8, choices=State, default=State.OPEN)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    closed_at = models.DateTimeField(null=True, blank=True, editable=False)

    def __str__(self) -> str:
        return self.title or str(self.id)


class KeyScope(models.TextChoices):
    """What an API key speaks for."""

    USER = "user"
    AGENT = "agent"
    SYSTEM = "system"


class ApiKey(models.Model):
    """A lasting credential. The key itself is shown once; the row keeps its SHA-256 and a visible prefix."""

    name = models.CharField(max_length=100)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys")
    scope = models.CharField(max_length=8, choices=KeyScope)
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="api_keys")
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API key"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(scope=KeyScope.AGENT, agent__isnull=False) | (~Q(scope=KeyScope.AGENT) & Q(agent__isnull=True)),
                name="api_key_agent_for_agent_scope",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"


class Badge(models.Model):
    """Whoever knows the key may see the agent's load as a picture, and nothing else; a new key ends the former."""

    agent = models.OneToOneField(Agent, on_delete=models.CASCADE, related_name="badge")
    key = models.CharField(max_length=32, unique=True)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    made_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"badge of {self.agent}"


class PublicLink(models.Model):
    """A link by which anybody may send an agent messages. Its token is shown once; the row keeps its SHA-256 and a visible prefix."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="public_links")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering: ClassVar = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"


class OnFull(models.TextChoices):
    """What becomes of a request that can't start now."""

    QUEUE = "queue"
    REJECT = "reject"


class FleetSettings(models.Model):
    """The one row of fleet-wide settings; made after every migrate."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    max_parallel_tasks_ceiling = models.PositiveSmallIntegerField(default=10)
    max_concurrent_tasks = models.PositiveIntegerField(null=True, blank=True)
    on_full = models.CharField(max_length=8, choices=OnFull, default=OnFull.QUEUE)
    paused = models.BooleanField(default=False)
    #: Stepped by each change of the ceiling; of the cap and `on_full`.
    ceiling_version = models.PositiveBigIntegerField(default=1)
    cap_version = models.PositiveBigIntegerField(default=1)

    class Meta:
        verbose_name_plural = "fleet settings"
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(id=1), name="fleet_settings_one_row"),
            models.CheckConstraint(
                condition=Q(max_parallel_tasks_ceiling__gte=1, max_parallel_tasks_ceiling__lte=MAX_CEILING), name="fleet_ceiling_in_range"
            ),
            models.CheckConstraint(
                condition=Q(max_concurrent_tasks__isnull=True) | Q(max_concurrent_tasks__gte=1, max_concurrent_tasks__lte=MAX_CAP),
                name="fleet_cap_in_range",
            ),
        ]

    def __str__(self) -> str:
        return "Fleet settings"


class AuditEntry(models.Model):
    """Who changed which setting, when, from what and to what. Only ever added."""

    at = models.DateTimeField(db_default=Now(), editable=False)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    actor_name = models.CharField(max_length=150)
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="audit")
    action = models.CharField(max_length=64)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    class Meta:
        ordering: ClassVar = ["-at", "-id"]
        verbose_name_plural = "audit entries"
        indexes: ClassVar = [
            models.Index(F("agent"), F("at").desc(), F("id").desc(), name="audit_newest_of_agent"),
            models.Index(F("at").desc(), F("id").desc(), name="audit_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.action} by {self.actor_name}"
