"""What-if: how an agent's last day or week would have gone with other limits."""

import re

from rest_framework.request import Request
from rest_framework.response import Response

from core import api
from core.errors import Invalid
from fleet import access
from fleet.first_values import MAX_CEILING
from fleet.models import MAX_BACKLOG_DEPTH, Agent
from fleet.selectors import ceiling, effective_limit

from ..schema import what_if as schema
from ..serializers.what_if import WhatIfOut
from ..what_if import Question, Window, answer_to

_SPAN = re.compile(r"([1-9][0-9]?)(?:-([1-9][0-9]?))?", re.ASCII)


class WhatIfView(api.ApiView):
    """One agent's past under other limits."""

    @schema.what_if
    def get(self, request: Request, name: str) -> Response:
        """What really happened in the window, and what would have with each limit asked for."""
        readers = {"limit": _limits, "window": api.choices(Window), "depth": api.integer(0, MAX_BACKLOG_DEPTH)}
        asked = api.strict_query(request, readers)
        agent = access.agent_for(principal=self.principal, name=name, verb=access.Verb.READ, queryset=Agent.objects.defer("runtime"))
        bound = ceiling()
        window, depth = Window(asked.get("window", Window.DAY)), asked.get("depth", agent.max_backlog_depth)
        limits = asked.get("limit", range(1, bound + 1))
        answer = answer_to(Question(agent_id=agent.pk, window=window, limits=limits, depth=depth))
        about = {"name": agent.name, "window": window, "limit": effective_limit(agent, bound), "depth": depth}
        return Response(WhatIfOut(answer, context=about).data, headers={"Cache-Control": "private, no-store"})


def _limits(name: str, sent: list[str]) -> range:
    """`8` or `1-10`."""
    value = api.text(max_length=5)(name, sent)
    if (found := _SPAN.fullmatch(value)) is not None:
        first, last = int(found[1]), int(found[2] or found[1])
        if first <= last <= MAX_CEILING:
            return range(first, last + 1)
    raise Invalid(f"{name} must be a number between 1 and {MAX_CEILING}, or a span of such numbers as 1-10")
