"""Limits and load: one agent's, every agent's, and the fleet-wide ceiling and cap."""

import hashlib
from collections.abc import Mapping

from django.utils import timezone
from django.utils.http import parse_etags
from rest_framework.fields import DateTimeField
from rest_framework.request import Request
from rest_framework.response import Response

from capacity.gate import gate_of, gated
from capacity.selectors import Meter, load_of, meters
from core import api
from core.conf import conf
from fleet import access
from fleet.first_values import MAX_CEILING
from fleet.models import Agent, FleetSettings
from fleet.selectors import agents_visible_to, ceiling, fleet_settings

from ..schema import capacity as schema
from ..serializers.capacity import CapacityIn, CapacityOut, CapIn, CapOut, CeilingIn, CeilingOut
from ..services import controls


class CapacityView(api.ApiView):
    """One agent's limits and load."""

    @schema.capacity_detail
    def get(self, request: Request, name: str) -> Response:
        """Settings, taken slots and the line's length; the `ETag` is of the settings alone."""
        api.strict_query(request)
        agents = gated(Agent.objects.select_related("changed_by").defer("runtime"))
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.READ, queryset=agents)
        gate = gate_of(agent)
        body = CapacityOut(gate, context={"load": load_of(gate, now=timezone.now())}).data
        return Response(body, headers={"ETag": api.version_tag(agent.settings_version)})

    @schema.capacity_update
    def put(self, request: Request, name: str) -> Response:
        """The new limit, and whatever else was sent; a raise starts queued work at once."""
        api.strict_query(request)
        seen = access.agent_for(principal=self.principal, name=name, verb=access.Verb.CHANGE)
        changes = CapacityIn.read(request, ceiling=ceiling())
        expected = api.expected_version(request, current=seen.settings_version)
        agent = controls.set_limit(principal=self.principal, name=name, changes=changes, expected_version=expected)
        body = {"message": "Capacity updated", "agent_name": agent.name, **changes}
        return Response(body, headers={"ETag": api.version_tag(agent.settings_version)})


class SlotsView(api.ApiView):
    """The load of every agent one may see."""

    @schema.slots_list
    def get(self, request: Request) -> Response:
        """An object by name; 304 while no agent's version has changed."""
        api.strict_query(request)
        agents = meters(agents_visible_to(self.principal).only("name"))
        headers = {"ETag": f'W/"{_digest(agents)}"', "Cache-Control": "private"}
        if _digest(agents) in _known_to_caller(request):
            return Response(status=304, headers=headers)
        now = DateTimeField().to_representation(timezone.now())
        return Response({"agents": {name: meter.as_dict() for name, meter in agents.items()}, "timestamp": now}, headers=headers)


class CeilingView(api.ApiView):
    """The fleet-wide upper bound of every agent's limit."""

    @schema.ceiling_detail
    def get(self, request: Request) -> Response:
        """The ceiling and what it may be."""
        api.strict_query(request)
        return _ceiling(fleet_settings())

    @schema.ceiling_update
    def put(self, request: Request) -> Response:
        """A new ceiling; what agents have stored stays as it is and is only held below it."""
        api.strict_query(request)
        access.require_superuser(self.principal)
        value = CeilingIn.read(request)["value"]
        expected = api.expected_version(request, current=fleet_settings().ceiling_version)
        return _ceiling(controls.set_ceiling(principal=self.principal, value=value, expected_version=expected))


class CapView(api.ApiView):
    """The fleet's cap on held slots."""

    @schema.cap_detail
    def get(self, request: Request) -> Response:
        """The cap, null for none, and what becomes of tasks at it."""
        api.strict_query(request)
        return _cap(fleet_settings())

    @schema.cap_update
    def put(self, request: Request) -> Response:
        """A new cap; a raise or null starts queued work at once, a cut stops nothing."""
        api.strict_query(request)
        access.require_superuser(self.principal)
        wanted = CapIn.read(request)
        expected = api.expected_version(request, current=fleet_settings().cap_version)
        return _cap(controls.set_cap(principal=self.principal, **wanted, expected_version=expected))


def _ceiling(fleet: FleetSettings) -> Response:
    first = min(MAX_CEILING, conf.max_parallel_tasks_ceiling)
    body = CeilingOut({"value": fleet.max_parallel_tasks_ceiling, "default": first, "min": 1, "max": MAX_CEILING}).data
    return Response(body, headers={"ETag": api.version_tag(fleet.ceiling_version)})


def _cap(fleet: FleetSettings) -> Response:
    return Response(CapOut(fleet).data, headers={"ETag": api.version_tag(fleet.cap_version)})


def _digest(agents: Mapping[str, Meter]) -> str:
    versions = "\n".join(f"{name} {agents[name].version}" for name in sorted(agents))
    return hashlib.sha256(versions.encode()).hexdigest()[:32]


def _known_to_caller(request: Request) -> set[str]:
    return {tag.removeprefix("W/").strip('"') for tag in parse_etags(request.headers.get("If-None-Match", ""))}
