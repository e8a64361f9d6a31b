"""Endpoints of the fleet: tokens, agents and their public links."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth import authenticate
from django.db.models import QuerySet
from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from core import api

from . import access, public_links, schema, selectors, services, throttles, tokens
from .errors import InvalidCredentials
from .health import Health
from .models import Agent, AuditEntry
from .serializers import AgentIn, AgentOut, AuditOut, FleetAuditOut, PublicLinkIn, PublicLinkOut, RefreshIn, TokenIn, settings_in


class TokenView(api.ApiView):
    """User name and password for a pair of tokens."""

    authentication_classes = ()
    permission_classes = ()

    @schema.token_create
    def post(self, request: Request) -> Response:
        """200 `{access, refresh}`; the throttle counts right and wrong tries alike."""
        api.strict_query(request)
        login = TokenIn.read(request)
        throttles.note_login(request, login["username"])
        user = authenticate(request, **login)
        if user is None:
            raise InvalidCredentials
        pair = tokens.issue(user)
        return _secret({"access": pair.access, "refresh": pair.refresh})


class TokenRefreshView(api.ApiView):
    """A refresh token for a new access token."""

    authentication_classes = ()
    permission_classes = ()

    @schema.token_refresh
    def post(self, request: Request) -> Response:
        """200 `{access}`."""
        api.strict_query(request)
        return _secret({"access": tokens.refresh_access(RefreshIn.read(request)["refresh"])})


class ShowsAgents:
    """How agents are shown; `runtime.views.agents` adds how they are doing."""

    def health(self, _agents: Sequence[Agent]) -> dict[str, Health]:
        """`{name: Health}` of those of which it is known."""
        return {}

    def shown(self, agents: Sequence[Agent]) -> list[dict[str, Any]]:
        """Their bodies."""
        return list(AgentOut(agents, many=True, context={"health": self.health(agents)}).data)


class AgentListView(ShowsAgents, api.ApiView):
    """The agents one may see, and new ones; `runtime.urls` serves it."""

    @schema.agent_list
    def get(self, request: Request) -> Response:
        """A page of them by name."""
        api.strict_query(request, api.KeysetPagination.parameters)
        agents = selectors.agents_visible_to(self.principal).select_related("owner")
        pages = api.KeysetPagination()
        pages.ordering = ("name",)
        return pages.get_paginated_response(self.shown(pages.paginate_queryset(agents, request)))

    @schema.agent_create
    def post(self, request: Request) -> Response:
        """201 and where it is."""
        access.require_person(self.principal)
        api.strict_query(request)
        body = AgentIn.read(request, ceiling=selectors.ceiling())
        agent = services.create_agent(
            principal=self.principal,
            name=body["name"],
            runtime=body["runtime"],
            description=body.get("description", ""),
            settings=settings_in(body),
        )
        agent.refresh_from_db(fields=["created_at"])
        [shown] = self.shown([agent])
        return Response(shown, status=201, headers={"Location": f"{request.path.rstrip('/')}/{agent.name}/"})


class AgentAuditView(api.ApiView):
    """What was changed of one agent. It tells how the agent is reached and who has keys for it: its owner's to know."""

    @schema.agent_audit
    def get(self, request: Request, name: str) -> Response:
        """A page of it, newest first."""
        api.strict_query(request, api.KeysetPagination.parameters)
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        return _audit(request, selectors.audit_of(agent), AuditOut)


class AuditView(api.ApiView):
    """What was changed of every agent, those deleted among them, and of the fleet."""

    @schema.audit_list
    def get(self, request: Request) -> Response:
        """A page of it, newest first."""
        api.strict_query(request, api.KeysetPagination.parameters)
        access.require_superuser(self.principal)
        return _audit(request, selectors.audit_of_fleet(), FleetAuditOut)


class AgentView(ShowsAgents, api.ApiView):
    """One agent, to read; `runtime.views.agents` adds what may start or stop work."""

    @schema.agent_detail
    def get(self, request: Request, name: str) -> Response:
        """The agent without its secrets."""
        api.strict_query(request)
        agents = selectors.living_agents().select_related("owner")
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.READ, queryset=agents)
        return self.answer(agent)

    def answer(self, agent: Agent) -> Response:
        """The agent, with the version of its settings."""
        [shown] = self.shown([agent])
        return Response(shown, headers={"ETag": api.version_tag(agent.settings_version)})


def _audit(request: Request, entries: QuerySet[AuditEntry], shown: type[AuditOut]) -> Response:
    return api.KeysetPagination.answer(entries, request, lambda entry: shown(entry).data, ordering=("-at", "-id"))


class PublicLinkListView(api.ApiView):
    """An agent's public links, and new ones."""

    @schema.public_link_list
    def get(self, request: Request, name: str) -> Response:
        """A page of those that work, newest first."""
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        api.strict_query(request, api.KeysetPagination.parameters)
        return api.KeysetPagination.answer(public_links.links_of(agent), request, lambda link: PublicLinkOut(link).data)

    @schema.public_link_create
    def post(self, request: Request, name: str) -> Response:
        """201 with the token, this once."""
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        api.strict_query(request)
        body = PublicLinkIn.read(request)
        made = public_links.create_link(principal=self.principal, agent=agent, name=body["name"])
        url = f"{reverse('fleet:token-create').removesuffix('token/')}public/chat/{made.token}"
        answer = _secret({**PublicLinkOut(made.row).data, "token": made.token, "url": url}, status=201)
        answer["Location"] = reverse("fleet:public-link-detail", args=[agent.name, made.row.pk])
        return answer


class PublicLinkView(api.ApiView):
    """One public link."""

    @schema.public_link_delete
    def delete(self, request: Request, name: str, link_id: int) -> Response:
        """204; the link leads nowhere any more."""
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        api.strict_query(request)
        public_links.revoke_link(principal=self.principal, agent=agent, link_id=link_id)
        return Response(status=204)


def _secret(body: Mapping[str, Any], *, status: int = 200) -> Response:
    return Response(body, status=status, headers={"Cache-Control": "no-store"})
