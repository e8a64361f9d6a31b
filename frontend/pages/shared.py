"""What the pages have in common: who reads, and which agent is theirs to see."""

from django.http import Http404, HttpRequest

from fleet import access
from fleet.errors import AccessDenied, AgentNotFound
from fleet.models import Agent
from fleet.principals import Principal
from fleet.selectors import living_agents

#: Django's form views take a PUT for a POST.
PAGE_METHODS = ["get", "head", "options", "post"]


def principal_of(request: HttpRequest) -> Principal:
    """The person who looks at the page."""
    return Principal.of_user(request.user)  # type: ignore[arg-type]  # signed in: no view is reached otherwise


def readable_agent(principal: Principal, name: str) -> Agent:
    """The agent; one that isn't the reader's to see answers as one that isn't there."""
    try:
        agents = living_agents().select_related("owner", "changed_by").defer("runtime")
        return access.agent_for(principal=principal, name=name, verb=access.Verb.READ, queryset=agents)
    except (AgentNotFound, AccessDenied) as error:
        raise Http404 from error
