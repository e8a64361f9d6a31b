"""What pages ask of the API for themselves."""

from rest_framework.request import Request
from rest_framework.response import Response

from core.api import ApiView, StrictSerializer

from . import tickets


class TicketIn(StrictSerializer):
    """Nothing."""


class TicketView(ApiView):
    """`POST /api/ws-ticket`."""

    def post(self, request: Request) -> Response:
        """A ticket for one websocket, opened within half a minute, from any origin."""
        TicketIn(data=request.data).is_valid(raise_exception=True)
        ticket = tickets.issue(principal=self.principal)
        return Response({"ticket": ticket, "expires_in": tickets.TICKET_SECONDS}, headers={"Cache-Control": "no-store"})
