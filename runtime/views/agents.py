"""Changing and deleting an agent: both may start or stop work."""

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from core import api
from fleet import access
from fleet import schema as fleet_schema
from fleet.selectors import ceiling
from fleet.serializers import AgentOut, AgentPatchIn
from fleet.views import AgentView as ReadAgentView

from ..services import agents


class AgentView(ReadAgentView):
    """One agent."""

    @fleet_schema.agent_update
    def patch(self, request: Request, name: str) -> Response:
        """The agent as it is now; a higher limit starts queued work at once."""
        api.strict_query(request)
        seen = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        changes = AgentPatchIn.read(request, ceiling=ceiling())
        expected = api.expected_version(request, current=seen.settings_version)
        agent = agents.change_agent(principal=self.principal, name=name, changes=changes, expected_version=expected)
        return Response(AgentOut(agent).data, headers={"ETag": api.version_tag(agent.settings_version)})

    @fleet_schema.agent_delete
    def delete(self, request: Request, name: str) -> HttpResponse:
        """204 once nothing of it can start any more."""
        api.strict_query(request)
        agents.delete_agent(principal=self.principal, name=name)
        return HttpResponse(status=204)
