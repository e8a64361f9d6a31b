"""The pages: each reads, renders, and leaves every decision to the rooms below."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_safe
from django_redis.exceptions import ConnectionInterrupted

from backlog import selectors as backlog
from backlog.models import Execution
from core.errors import SlotsUnavailable, Throttled
from core.redis import RedisError
from fleet import access
from fleet.errors import AccessDenied, AgentNotFound
from fleet.models import Agent
from fleet.principals import Principal
from fleet.selectors import agents_visible_to, living_agents
from fleet.throttles import note_login
from runtime.standing import standings

from .load import load_of, slot_board

SHOWN_WAITING = 50
SHOWN_RECENT = 20
#: Django's form views take a PUT for a POST.
PAGE_METHODS = ["get", "head", "options", "post"]


@method_decorator(sensitive_post_parameters("password"), name="dispatch")
class LoginPage(LoginView):
    """Signs in; tries are counted with those of the API's token endpoint."""

    http_method_names = PAGE_METHODS
    template_name = "frontend/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The page asked for, or the form with what was wrong: 429 for one try too many, 503 where tries can't be counted."""
        try:
            note_login(request, request.POST.get("username", ""))
        except Throttled as refusal:
            return self._refused(refusal, status=429)
        except (RedisError, ConnectionInterrupted):
            return self._refused(SlotsUnavailable(), status=503)
        return super().post(request, *args, **kwargs)

    def _refused(self, refusal: Throttled | SlotsUnavailable, *, status: int) -> HttpResponse:
        answer = self.render_to_response(self.get_context_data(form=self.get_form_class()(), refusal=refusal.detail), status=status)
        answer.headers["Retry-After"] = str(refusal.retry_after or 1)
        return answer


@never_cache
@login_required
@require_safe
def agents(request: HttpRequest) -> HttpResponse:
    """A tile for each agent that the reader may see; the socket keeps the meters right from then on."""
    rows = list(agents_visible_to(_principal(request)).select_related("owner").defer("runtime"))
    load = load_of(rows)
    # An agent that was deleted between the two reads has no meter.
    tiles = [(row, load.meters[row.name]) for row in rows if row.name in load.meters]
    return render(request, "frontend/agents.html", {"tiles": tiles, "known": load.known, "section": "agents"})


@never_cache
@login_required
@require_safe
def agent(request: HttpRequest, name: str) -> HttpResponse:
    """One agent: its meter, its slots, its backlog, what it ran, and a form to submit."""
    return render(request, "frontend/agent.html", _agent_context(request, name))


@never_cache
@login_required
@require_safe
def agent_work(request: HttpRequest, name: str) -> HttpResponse:
    """The part of an agent's page that its page renews when the socket tells of a change."""
    return render(request, "frontend/_work.html", _agent_context(request, name))


def _agent_context(request: HttpRequest, name: str) -> dict[str, Any]:
    principal = _principal(request)
    row = _readable_agent(principal, name)
    load = load_of([row])
    if row.name not in load.meters:
        raise Http404
    meter = load.meters[row.name]
    waiting = list(backlog.queue_of(row.pk).select_related("agent").defer("agent__runtime")[:SHOWN_WAITING])
    told = standings(waiting)
    recent = Execution.objects.filter(agent=row).order_by("-created_at", "-id")[:SHOWN_RECENT]
    return {
        "section": "agents",
        "agent": row,
        "meter": meter,
        "known": load.known,
        "slots": slot_board(row, limit=meter.max, now=timezone.now()),
        "waiting": [(told[execution.pk], execution, _may_cancel(principal, row, execution)) for execution in waiting],
        "more_waiting": max(0, meter.queued - SHOWN_WAITING),
        "recent": [(execution, _may_cancel(principal, row, execution)) for execution in recent],
    }


def _readable_agent(principal: Principal, name: str) -> Agent:
    """The agent; one that isn't the reader's to see answers as one that isn't there."""
    try:
        agents = living_agents().select_related("owner").defer("runtime")
        return access.agent_for(principal=principal, name=name, verb=access.Verb.READ, queryset=agents)
    except (AgentNotFound, AccessDenied) as error:
        raise Http404 from error


def _may_cancel(principal: Principal, agent: Agent, execution: Execution) -> bool:
    return access.may_cancel(principal, agent, submitted_by_id=execution.submitted_by_id, submitted_key_id=execution.submitted_key_id)


def _principal(request: HttpRequest) -> Principal:
    return Principal.of_user(request.user)  # type: ignore[arg-type]  # signed in: no view is reached otherwise
