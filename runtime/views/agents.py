"""Changing and deleting an agent: both may start or stop work."""

from collections.abc import Sequence

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from capacity.health import healths
from core import api
from fleet import access
from fleet import schema as fleet_schema
from fleet.health import Health
from fleet.models import Agent
from fleet.selectors import ceiling
from fleet.serializers import AgentPatchIn
from fleet.views import AgentListView as ListAgentsView
from fleet.views import AgentView as ReadAgentView

from ..services import agents


class HealthShown:
    """Agents are shown with their health."""

    def health(self, agents: Sequence[Agent]) -> dict[str, Health]:
        """Of all of them; unknown while the slot store is away."""
        return healths(agents)


class AgentListView(HealthShown, ListAgentsView):
    """The agents one may see, and new ones."""


class AgentView(HealthShown, ReadAgentView):
    """One agent."""

    @fleet_schema.agent_update
    def patch(self, request: Request, name: str) -> Response:
        """The agent as it is now; a higher limit starts queued work at once."""
        api.strict_query(request)
        seen = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        changes = AgentPatchIn.read(request, ceiling=ceiling())
        expected = api.expected_version(request, current=seen.settings_version)
        agent = agents.change_agent(principal=self.principal, name=name, changes=changes, expected_version=expected)
        return self.answer(agent)

    @fleet_schema.agent_delete
    def delete(self, request: Request, name: str) -> HttpResponse:
        """204 once nothing of it can start any more."""
        api.strict_query(request)
        agents.delete_agent(principal=self.principal, name=name)
        return HttpResponse(status=204)
