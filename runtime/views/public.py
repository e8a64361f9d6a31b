"""What visitors of a public link can do: say something, and read what became of it."""

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from backlog.models import Execution
from core import api
from core.asgi import Answer
from fleet import throttles

from .. import waiting
from ..errors import WaitTimeout
from ..schema import public as schema
from ..serializers.public import PublicExecutionOut, PublicMessageIn
from ..services import public
from .preferences import Manner, manner_of
from .tasks import WAIT_FACTOR

_NO_STORE = {"Cache-Control": "no-store"}


class PublicChatView(api.ApiView):
    """An agent, for whoever has the link."""

    authentication_classes = ()
    permission_classes = ()

    @schema.public_chat
    def post(self, request: Request, token: str) -> HttpResponse:
        """202 at once, or the result: 200, or the failure as a problem."""
        throttles.note_public(request)
        link = public.link_of(token)
        api.strict_query(request)
        body = PublicMessageIn.read(request)
        manner = manner_of(request, async_mode=body.get("async_mode"))
        submitted = public.say(link=link, message=body["message"])
        headers = _NO_STORE | ({"Preference-Applied": manner.applied} if manner.applied else {})
        location = reverse("runtime:public-execution", args=[token, submitted.execution_id])
        if manner.at_once:
            return waiting.sent(_accepted(submitted.execution_id, location=location, headers=headers))
        late = partial(_late, manner=manner, location=location, headers=headers)
        return waiting.when_finished(
            request,
            execution_id=submitted.execution_id,
            seconds=manner.wait_seconds or WAIT_FACTOR * submitted.timeout_seconds,
            render=waiting.EndOfTask(execution_id=submitted.execution_id, late=late, headers=headers, body=_shown),
        )


class PublicExecutionView(api.ApiView):
    """What came by a link, for whoever has it."""

    authentication_classes = ()
    permission_classes = ()

    @schema.public_execution
    def get(self, request: Request, token: str, execution_id: uuid.UUID) -> Response:
        """The execution, as far as it is a visitor's."""
        link = public.link_of(token)
        api.strict_query(request)
        return Response(_shown(public.execution_by(link=link, execution_id=execution_id)), headers=_NO_STORE)


def _shown(row: Execution) -> dict[str, Any]:
    return dict(PublicExecutionOut(row).data)


def _late(row: Execution, *, manner: Manner, location: str, headers: Mapping[str, str]) -> Answer:
    if manner.wait_seconds is not None:
        return _accepted(row.pk, location=location, headers=headers)
    raise WaitTimeout(execution_id=row.pk, status=row.status, headers={**headers, "Location": location})


def _accepted(execution_id: uuid.UUID, *, location: str, headers: Mapping[str, str]) -> Answer:
    body = {"status": "accepted", "execution_id": str(execution_id), "async_mode": True}
    return Answer.json(202, body, headers={**headers, "Location": location})
