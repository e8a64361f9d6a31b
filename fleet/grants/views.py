"""Endpoints of shares and keys. All of them take a person."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from core import api

from .. import access, keys, services, shares
from ..errors import AccessDenied, KeyNotFound
from ..models import Agent, ApiKey, KeyScope
from . import schema
from .serializers import AgentKeyIn, KeyIn, KeyOut, ShareIn, ShareOut


class ShareListView(api.ApiView):
    """With whom an agent is shared."""

    @schema.share_list
    def get(self, request: Request, name: str) -> Response:
        """A page of them, newest first."""
        agent = self._own(name)
        api.strict_query(request, api.KeysetPagination.parameters)
        return api.KeysetPagination.answer(shares.shares_of(agent), request, lambda share: ShareOut(share).data)

    @schema.share_create
    def post(self, request: Request, name: str) -> Response:
        """201 and where it is taken back; 200 where it was shared with them already."""
        agent = self._own(name)
        api.strict_query(request)
        share, is_new = shares.share_agent(principal=self.principal, agent=agent, **ShareIn.read(request))
        place = reverse("fleet:share-detail", args=[agent.name, share.user.get_username()])
        return Response(ShareOut(share).data, status=201 if is_new else 200, headers={"Location": place})

    def _own(self, name: str) -> Agent:
        return access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)


class ShareView(api.ApiView):
    """One share."""

    @schema.share_delete
    def delete(self, request: Request, name: str, username: str) -> HttpResponse:
        """204; they may use the agent no more."""
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        api.strict_query(request)
        shares.withdraw_share(principal=self.principal, agent=agent, username=username)
        return HttpResponse(status=204)


class AgentKeyListView(api.ApiView):
    """The keys that speak for an agent, and new ones."""

    @schema.agent_key_list
    def get(self, request: Request, name: str) -> Response:
        """A page of them, revoked ones among them, newest first."""
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        return _page(request, keys.keys_of_agent(agent))

    @schema.agent_key_create
    def post(self, request: Request, name: str) -> Response:
        """201 with the key, this once."""
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        api.strict_query(request)
        body = AgentKeyIn.read(request)
        made = services.create_key(principal=self.principal, owner=self.principal.user, scope=KeyScope.AGENT, agent=agent, **body)
        return _made(made, place=reverse("fleet:agent-key-detail", args=[agent.name, made.row.pk]))


class AgentKeyView(api.ApiView):
    """One key that speaks for an agent."""

    @schema.agent_key_revoke
    def delete(self, request: Request, name: str, key_id: int) -> HttpResponse:
        """204; the key is refused from now on."""
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.OWN)
        return _revoke(self, request, keys.keys_of_agent(agent), key_id)


class KeyListView(api.ApiView):
    """One's own keys, and new ones; of superusers those of the system, too."""

    @schema.key_list
    def get(self, request: Request) -> Response:
        """A page of them, revoked ones among them, newest first."""
        access.require_person(self.principal)
        return _page(request, keys.keys_managed_by(self.principal))

    @schema.key_create
    def post(self, request: Request) -> Response:
        """201 with the key, this once."""
        access.require_person(self.principal)
        api.strict_query(request)
        body = KeyIn.read(request)
        if body["scope"] == KeyScope.SYSTEM and not self.principal.is_superuser:
            raise AccessDenied("Only superusers can make system keys")
        made = services.create_key(principal=self.principal, owner=self.principal.user, **body)
        return _made(made, place=reverse("fleet:key-detail", args=[made.row.pk]))


class KeyView(api.ApiView):
    """One of one's own keys."""

    @schema.key_revoke
    def delete(self, request: Request, key_id: int) -> HttpResponse:
        """204; the key is refused from now on."""
        access.require_person(self.principal)
        return _revoke(self, request, keys.keys_managed_by(self.principal), key_id)


def _page(request: Request, rows: QuerySet[ApiKey]) -> Response:
    api.strict_query(request, api.KeysetPagination.parameters)
    return api.KeysetPagination.answer(rows, request, lambda key: KeyOut(key).data)


def _made(made: services.NewKey, *, place: str) -> Response:
    body: dict[str, Any] = {**KeyOut(made.row).data, "key": made.key}
    return Response(body, status=201, headers={"Location": place, "Cache-Control": "no-store"})


def _revoke(view: api.ApiView, request: Request, rows: QuerySet[ApiKey], key_id: int) -> HttpResponse:
    api.strict_query(request)
    key = rows.filter(pk=key_id).first()
    if key is None:
        raise KeyNotFound
    services.revoke_key(principal=view.principal, key=key)
    return HttpResponse(status=204)
