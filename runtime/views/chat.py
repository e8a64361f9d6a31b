"""Conversations, turn by turn."""

from collections.abc import Mapping
from functools import partial

from django.http import HttpResponse
from rest_framework.request import Request

from backlog.models import Execution
from core import api
from core.asgi import Answer

from .. import waiting
from ..schema import chat as schema
from ..selectors import execution
from ..serializers.chat import ChatIn
from ..services import chat
from .preferences import idempotency_of
from .tasks import WAIT_FACTOR


class ChatView(api.ApiView):
    """An agent to talk to."""

    @schema.chat_turn
    def post(self, request: Request, name: str) -> HttpResponse:
        """200 with the turn's execution, or its failure as a problem."""
        api.strict_query(request)
        body = ChatIn.read(request)
        key = idempotency_of(request, principal=self.principal, kind="chat")
        turn = chat.take_turn(principal=self.principal, name=name, idempotency=key, **body)
        headers = {"Idempotent-Replayed": "true"} if turn.replayed else {}
        return waiting.when_finished(
            request,
            execution_id=turn.execution_id,
            seconds=WAIT_FACTOR * turn.timeout_seconds,
            render=waiting.EndOfTask(execution_id=turn.execution_id, late=partial(_late, headers=headers), headers=headers),
            gone=partial(chat.leave, turn.execution_id),
        )


def _late(row: Execution, *, headers: Mapping[str, str]) -> Answer:
    """Who is answered waits no longer: a turn still in line is cancelled, one that has a slot goes on."""
    if chat.leave(row.pk):
        raise waiting.failure(execution(row.pk), headers=headers)
    raise waiting.still_going(row, headers=headers)
