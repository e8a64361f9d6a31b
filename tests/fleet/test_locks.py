"""What an agent is when its row is held decides, not what it was when the caller was let in."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from fleet import lifecycle, services
from fleet.errors import AccessDenied, AgentNotFound
from fleet.models import Agent, AuditEntry
from fleet.principals import Principal

pytestmark = pytest.mark.django_db

WRITES: dict[str, Callable[[Principal, Agent], object]] = {
    "change": lambda who, agent: lifecycle.change_agent(principal=who, agent=agent, changes={"runtime": {"argv": ["true"]}}),
    "limits": lambda who, agent: services.change_limit(principal=who, agent=agent, changes={"max_parallel_tasks": 1}),
    "pause": lambda who, agent: lifecycle.set_paused(principal=who, agent=agent, paused=True),
    "delete": lambda who, agent: lifecycle.delete_agent(principal=who, agent=agent),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_who_handed_an_agent_on_a_moment_ago_changes_nothing_of_it(
    agent: Agent, owner: User, stranger: User, write: Callable[[Principal, Agent], object]
) -> None:
    Agent.objects.filter(pk=agent.pk).update(owner=stranger)
    before = Agent.objects.filter(pk=agent.pk).values().get()
    with pytest.raises(AccessDenied):
        write(Principal.of_user(owner), agent)
    assert Agent.objects.filter(pk=agent.pk).values().get() == before
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_of_an_agent_that_was_deleted_a_moment_ago_nothing_is_changed(
    agent: Agent, owner: User, write: Callable[[Principal, Agent], object]
) -> None:
    lifecycle.delete_agent(principal=Principal.of_user(owner), agent=Agent.objects.get(pk=agent.pk))
    with pytest.raises(AgentNotFound):
        write(Principal.of_user(owner), agent)
