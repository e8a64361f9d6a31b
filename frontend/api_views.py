"""What pages ask of the API for themselves, and the badges of agents."""

from django.http import HttpResponse
from django.urls import reverse
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.api import ApiView, StrictSerializer, strict_query
from core.api.schema import operation
from fleet import badges
from fleet.models import Badge

from . import tickets


class TicketIn(StrictSerializer):
    """Nothing."""


class TicketOut(serializers.Serializer):
    """A ticket, good once."""

    ticket = serializers.CharField()
    expires_in = serializers.IntegerField()


class TicketView(ApiView):
    """`POST /api/ws-ticket`."""

    @operation("ws_ticket_create", answers={200: TicketOut}, body=TicketIn)
    def post(self, request: Request) -> Response:
        """A ticket for one websocket, opened within half a minute, from any origin."""
        strict_query(request)
        TicketIn.read(request)
        ticket = tickets.issue(principal=self.principal)
        return Response({"ticket": ticket, "expires_in": tickets.TICKET_SECONDS}, headers={"Cache-Control": "no-store"})


class BadgeIn(StrictSerializer):
    """Nothing."""


class BadgeOut(serializers.Serializer):
    """Where an agent's badge is; all null while it has none."""

    url = serializers.URLField(allow_null=True)
    markdown = serializers.CharField(allow_null=True, help_text="A line for a README.")
    made_at = serializers.DateTimeField(allow_null=True)


class BadgeView(ApiView):
    """An agent's badge."""

    @operation("agent_badge_detail", answers={200: BadgeOut}, problems=(404,))
    def get(self, request: Request, name: str) -> Response:
        """Where it is."""
        strict_query(request)
        return self._answer(request, badges.badge_of(principal=self.principal, name=name))

    @operation("agent_badge_renew", answers={201: BadgeOut}, problems=(404,), body=BadgeIn)
    def post(self, request: Request, name: str) -> Response:
        """A badge under a new address; the former is a 404 from now on."""
        strict_query(request)
        BadgeIn.read(request)
        return self._answer(request, badges.renew_badge(principal=self.principal, name=name), status=201)

    @operation("agent_badge_revoke", answers={204: OpenApiResponse(description="It has none any more.")}, problems=(404,))
    def delete(self, request: Request, name: str) -> HttpResponse:
        """204; the address is a 404 from now on, if there was one."""
        strict_query(request)
        badges.revoke_badge(principal=self.principal, name=name)
        return HttpResponse(status=204)

    def _answer(self, request: Request, badge: Badge | None, *, status: int = 200) -> Response:
        url = badge and request.build_absolute_uri(reverse("frontend:badge", args=[badge.key]))
        body = {"url": url, "markdown": url and f"![{badge.agent.name}]({url})", "made_at": badge and badge.made_at}  # type: ignore[union-attr]
        return Response(BadgeOut(body).data, status=status, headers={"Cache-Control": "no-store"})
