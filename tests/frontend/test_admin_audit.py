"""The audit trail in the admin: for the owners of its agents, and only to be read."""

import pytest
from django.contrib.auth.models import User

from fleet.models import Agent, AuditEntry
from tests.frontend.admin_pages import AGENTS, AUDIT, listed, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def entries(agent: Agent, owner: User, stranger: User, make_agent: object) -> dict[str, AuditEntry]:
    """One of the owner's agent, one of a stranger's, one of the fleet."""
    foreign = make_agent(name="foreign", owner=stranger)  # type: ignore[operator]  # the fixture is a function

    def entry(of: Agent | None, action: str, before: object, after: object) -> AuditEntry:
        return AuditEntry.objects.create(agent=of, actor=owner, actor_name="olga", action=action, before=before, after=after)

    return {
        "own": entry(agent, "max_parallel_tasks", 3, 5),
        "foreign": entry(foreign, "shared", None, "<b>nina</b>"),
        "fleet": entry(None, "fleet_paused", False, True),
    }


def test_owners_read_what_was_changed_of_their_agents_and_superusers_all(
    entries: dict[str, AuditEntry], owner: User, superuser: User
) -> None:
    text = signed_in(owner).get(AUDIT).text
    assert "max parallel tasks" in text
    assert "3 → 5" in text
    assert "foreign" not in text
    assert "shared" not in text
    text = signed_in(superuser).get(AUDIT).text
    assert listed(signed_in(superuser).get(AUDIT)) == 3
    assert "none → &lt;b&gt;nina" in text
    assert "no → yes" in text


def test_the_trail_is_filtered_and_searched(entries: dict[str, AuditEntry], owner: User, superuser: User, agent: Agent) -> None:
    foreign = entries["foreign"].agent_id
    for user, query, found in (
        (superuser, "agent=fleet", 1), (superuser, f"agent={foreign}", 1), (superuser, "action=shared", 1), (superuser, "q=foreign", 1),
        (superuser, "since=1", 3), (owner, f"agent={agent.pk}", 1), (owner, f"agent={foreign}", 0), (owner, "agent=fleet", 0),
        (owner, "q=foreign", 0), (owner, "q=olga", 1),
    ):  # fmt: skip
        assert (query, listed(signed_in(user).get(f"{AUDIT}?{query}"))) == (query, found)


def test_nothing_of_the_trail_can_be_changed(entries: dict[str, AuditEntry], owner: User, superuser: User) -> None:
    own, foreign = entries["own"], entries["foreign"]
    for user in (owner, superuser):
        client = signed_in(user)
        assert 'name="_save"' not in client.get(f"{AUDIT}{own.pk}/change/").text
        assert client.post(f"{AUDIT}add/", {"action": "forged"}).status_code == 403
        assert client.post(f"{AUDIT}{own.pk}/change/", {"action": "forged"}).status_code == 403
        assert client.post(f"{AUDIT}{own.pk}/delete/", {"post": "yes"}).status_code == 403
    assert signed_in(owner).get(f"{AUDIT}{foreign.pk}/change/").status_code == 302
    assert AuditEntry.objects.filter(action="forged").count() == 0
    assert AuditEntry.objects.count() == 3


def test_the_history_of_an_agent_is_its_trail(entries: dict[str, AuditEntry], owner: User, agent: Agent) -> None:
    client = signed_in(owner)
    assert f"{AGENTS}{agent.pk}/history/" in client.get(f"{AGENTS}{agent.pk}/change/").text
    answer = client.get(f"{AGENTS}{agent.pk}/history/")
    assert answer["Location"] == f"{AUDIT}?agent={agent.pk}"
    assert listed(client.get(answer["Location"])) == 1
    assert client.get(f"{AGENTS}{entries['foreign'].agent_id}/history/")["Location"] == "/admin/"
