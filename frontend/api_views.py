"""What pages ask of the API for themselves."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.api import ApiView, StrictSerializer, strict_query
from core.api.schema import operation

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
