"""Results of the tools, where they aren't a REST body word for word."""

from rest_framework import serializers

from fleet.schema import AgentPageOut
from runtime.schema.executions import QueueOut

_CURSOR = "The following page's cursor; null at the end."


class AgentCursorPageOut(AgentPageOut):
    """A page of the agents one may see, by name."""

    next = serializers.CharField(allow_null=True, help_text=_CURSOR)  # type: ignore[assignment]  # a link over REST
    previous = None  # type: ignore[assignment]  # REST framework's way to take a field back


class QueueCursorPageOut(QueueOut):
    """A page of one agent's line, first in line first."""

    next = serializers.CharField(allow_null=True, help_text=_CURSOR)  # type: ignore[assignment]  # as above
