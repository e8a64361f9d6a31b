"""Bodies of the fleet's endpoints."""

from typing import Any

from rest_framework import serializers

from core import api

from . import limits
from .first_values import MAX_CEILING
from .models import MAX_BACKLOG_DEPTH, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS, Agent
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
    paused = serializers.BooleanField()
    max_parallel_tasks = serializers.IntegerField()
    max_backlog_depth = serializers.IntegerField()
    execution_timeout_seconds = serializers.IntegerField()
    created_at = serializers.DateTimeField()

    def get_runtime(self, agent: Agent) -> dict[str, Any]:
        """Without its secrets."""
        return shown(agent)


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
