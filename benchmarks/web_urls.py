"""Trinity's URLs, and a view that does the least a submit could do: one row, one message."""

from celery import current_app
from django.db.models.functions import Now
from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backlog.models import Execution, Status


class BareView(APIView):
    """Asks nobody who they are, checks nothing, takes no slot."""

    authentication_classes = ()
    permission_classes = ()

    def post(self, request: Request, agent_id: int) -> Response:
        """Insert a row, publish a message."""
        row = Execution(
            agent_id=agent_id,
            agent_name="bare",
            status=Status.SUCCESS,
            completed_at=Now(),
            message=request.data["message"],
            timeout_seconds=900,
        )
        row.save(force_insert=True)
        current_app.send_task("benchmarks.stamp", args=[str(row.pk), 0.0])
        return Response({"execution_id": str(row.pk)}, status=202)


urlpatterns = [path("bare/<int:agent_id>", BareView.as_view()), path("", include("trinity.urls"))]
