"""Pausing, clearing a line, giving one slot back."""

from rest_framework.request import Request
from rest_framework.response import Response

from core import api
from fleet import access
from fleet.models import Agent
from fleet.principals import Principal
from fleet.selectors import fleet_settings

from ..schema import controls as schema
from ..serializers.controls import NothingIn, SlotReleaseIn
from ..services import controls, lines, releases
from ..services.releases import Release


class PauseView(api.ApiView):
    """Pausing one agent."""

    @schema.agent_pause
    def post(self, request: Request, name: str) -> Response:
        """Nothing new starts from here on; again: the same."""
        _check_owned(self.principal, name, request)
        return _state(controls.pause_agent(principal=self.principal, name=name))


class ResumeView(api.ApiView):
    """Resuming one agent."""

    @schema.agent_resume
    def post(self, request: Request, name: str) -> Response:
        """Its line starts at once; again: the same."""
        _check_owned(self.principal, name, request)
        return _state(controls.resume_agent(principal=self.principal, name=name))


class FleetPauseView(api.ApiView):
    """Pausing all agents."""

    @schema.fleet_pause
    def post(self, request: Request) -> Response:
        """Nothing new of any agent starts; again: the same."""
        api.strict_query(request)
        access.require_superuser(self.principal)
        NothingIn.read(request)
        return Response({"paused": controls.pause_fleet(principal=self.principal)})


class FleetResumeView(api.ApiView):
    """Resuming all agents."""

    @schema.fleet_resume
    def post(self, request: Request) -> Response:
        """Every line starts at once, but those of agents paused themselves; again: the same."""
        api.strict_query(request)
        access.require_superuser(self.principal)
        NothingIn.read(request)
        return Response({"paused": controls.resume_fleet(principal=self.principal)})


class QueueClearView(api.ApiView):
    """Clearing one agent's line."""

    @schema.queue_clear
    def post(self, request: Request, name: str) -> Response:
        """What waits is cancelled, what runs goes on."""
        _check_owned(self.principal, name, request)
        return Response({"cleared": lines.clear_line(principal=self.principal, name=name)})


class SlotReleaseView(api.ApiView):
    """Giving one slot of an agent back."""

    @schema.slot_release
    def post(self, request: Request, name: str) -> Response:
        """200 where the slot is free now, 202 where it will be as soon as the work has stopped."""
        api.strict_query(request)
        access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        asked = SlotReleaseIn.read(request)
        release = releases.release_slot(principal=self.principal, name=name, **asked)
        body = {
            "status": "released" if release.freed else "releasing",
            "execution_id": str(asked["execution_id"]),
            "agent_name": name,
            "limit_may_be_exceeded": release.exceeds,
            "message": _sentence(release),
        }
        return Response(body, status=200 if release.freed else 202)


def _check_owned(principal: Principal, name: str, request: Request) -> None:
    """That the agent is theirs, and the request empty: who may not is told so before their body is looked at."""
    api.strict_query(request)
    access.agent_for(principal=principal, name=name, verb=access.Verb.OWN)
    NothingIn.read(request)


def _state(agent: Agent) -> Response:
    return Response({"agent_name": agent.name, "paused": agent.paused, "fleet_paused": fleet_settings().paused})


def _sentence(release: Release) -> str:
    if release.exceeds:
        return "The limit may be exceeded until the work that held this slot has stopped"
    return "The slot is free" if release.freed else "The slot is freed as soon as its work has stopped"
