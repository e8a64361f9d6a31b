"""Cancelling many executions."""

from rest_framework.request import Request
from rest_framework.response import Response

from core import api

from ..schema import executions as schema
from ..serializers.executions import CancelManyIn
from ..services import cancelling
from .filters import lookups_of


class CancelManyView(api.ApiView):
    """The cancel of all that match."""

    @schema.execution_cancel_many
    def post(self, request: Request) -> Response:
        """How many are over now, and how many are being stopped; with `dry_run` how many wait and how many run, and all go on."""
        api.strict_query(request)
        asked = CancelManyIn.read(request)
        cancel = cancelling.cancellable if asked.get("dry_run") else cancelling.cancel_matching
        done = cancel(principal=self.principal, lookups=lookups_of(asked, principal=self.principal))
        return Response({"cancelled": done.cancelled, "cancelling": done.cancelling})
