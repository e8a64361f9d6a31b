"""Bodies of the fleet's endpoints."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core import api

from . import limits
from .first_values import MAX_CEILING
from .health import Health
from .models import MAX_BACKLOG_DEPTH, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS, Agent, AuditEntry, PublicLink
from .runtimes import RuntimeField, RuntimePatchField, shown


class AgentIn(api.StrictSerializer):
    """A new agent."""

    name = api.CharField(max_length=63)
    runtime = RuntimeField()
    description = api.CharField(max_length=10_000, allow_blank=True, required=False)
    max_parallel_tasks = api.IntegerField(min_value=1, max_value=MAX_CEILING, required=False)
    max_backlog_depth = api.IntegerField(min_value=0, max_value=MAX_BACKLOG_DEPTH, required=False)
    execution_timeout_seconds = api.IntegerField(min_value=MIN_TIMEOUT_SECONDS, max_value=MAX_TIMEOUT_SECONDS, required=False)

    def __init__(self, *args: Any, ceiling: int = MAX_CEILING, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limit = self.fields["max_parallel_tasks"]
        assert isinstance(limit, api.IntegerField)  # noqa: S101 - for the type checker
        limit.max_value = ceiling


class AgentPatchIn(api.StrictSerializer):
    """Changes of an agent; what is left out stays."""

    description = api.CharField(max_length=10_000, allow_blank=True, required=False)
    owner = api.CharField(max_length=150, required=False, help_text="The user name of its new owner.")
    runtime = RuntimePatchField(required=False)
    max_parallel_tasks = api.IntegerField(min_value=1, max_value=MAX_CEILING, required=False, help_text="At most the ceiling.")
    max_backlog_depth = api.IntegerField(min_value=0, max_value=MAX_BACKLOG_DEPTH, required=False)
    execution_timeout_seconds = api.IntegerField(min_value=MIN_TIMEOUT_SECONDS, max_value=MAX_TIMEOUT_SECONDS, required=False)

    def __init__(self, *args: Any, ceiling: int = MAX_CEILING, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limit: Any = self.fields["max_parallel_tasks"]
        limit.max_value = ceiling


class AgentOut(api.StrictSerializer):
    """An agent as its readers see it."""

    name = serializers.CharField()
    description = serializers.CharField()
    owner = serializers.CharField(source="owner.username")
    runtime = serializers.SerializerMethodField()
    tool_servers = serializers.SerializerMethodField()
    paused = serializers.BooleanField()
    health = serializers.SerializerMethodField()
    max_parallel_tasks = serializers.IntegerField()
    max_backlog_depth = serializers.IntegerField()
    execution_timeout_seconds = serializers.IntegerField()
    created_at = serializers.DateTimeField()

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_tool_servers(self, _agent: Agent) -> list[str]:
        """The tool servers its tasks may use; agents have none of their own."""
        return []

    @extend_schema_field(serializers.ChoiceField(choices=list(Health)))
    def get_health(self, agent: Agent) -> str:
        """One word for its load, read from the `health` in the context."""
        known: dict[str, Health] = self.context.get("health", {})
        return known.get(agent.name, Health.UNKNOWN)

    def get_runtime(self, agent: Agent) -> dict[str, Any]:
        """Without its secrets."""
        return shown(agent)


@extend_schema_field({"description": "Whatever JSON has, null among it."})
class ToldField(serializers.JSONField):
    """A setting's value, or what was done."""


class AuditOut(serializers.Serializer):
    """A change: who made it, when, of what, from what and to what."""

    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_name", help_text="A user name; `system` for what ends by itself.")
    action = serializers.CharField(help_text="The setting that was changed, or what was done.")

    def get_fields(self) -> dict[str, serializers.Field]:
        """The two whose names are Python's own words, too."""
        return {**super().get_fields(), "from": ToldField(source="before"), "to": ToldField(source="after")}


class FleetAuditOut(AuditOut):
    """A change of any agent, or of the fleet."""

    agent_name = serializers.SerializerMethodField()

    def get_agent_name(self, entry: AuditEntry) -> str | None:
        """Null for what is no agent's."""
        return None if entry.agent is None else entry.agent.name


class PublicLinkIn(api.StrictSerializer):
    """A new public link."""

    name = api.CharField(max_length=100, blanks=False, help_text="For its owner, and the source of what comes by it.")


class PublicLinkOut(serializers.Serializer):
    """A public link as its owner sees it ever after."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="The beginning of its token.")
    created_by = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)

    def get_created_by(self, link: PublicLink) -> str | None:
        """Their user name; null where they are gone."""
        return None if link.created_by is None else link.created_by.get_username()


class TokenIn(api.StrictSerializer):
    """A login."""

    username = api.CharField(max_length=150)
    password = api.CharField(max_length=4096)


class RefreshIn(api.StrictSerializer):
    """A refresh token."""

    refresh = api.CharField(max_length=4096)


def settings_in(data: dict[str, Any]) -> dict[str, Any]:
    """The capacity settings among a body's values."""
    return {name: data[name] for name in limits.NAMES if name in data}
