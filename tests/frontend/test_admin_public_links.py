"""Public links in the admin: owners make, see and revoke those of their agents."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet import public_links
from fleet.models import Agent, PublicLink
from fleet.principals import Principal

pytestmark = pytest.mark.django_db

LINKS = "/admin/fleet/publiclink/"


@pytest.fixture
def signed_in(valkey: object) -> Callable[[User], Client]:
    """Makes browsers in which a user is signed in."""

    def make(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return make


def link_to(agent: Agent, name: str = "website") -> public_links.NewLink:
    """A new link of the agent's owner."""
    return public_links.create_link(principal=Principal.of_user(agent.owner), agent=agent, name=name)


def test_a_link_is_shown_once_and_works(signed_in: Any, agent: Agent, owner: User) -> None:
    client = signed_in(owner)
    answer = client.post(f"{LINKS}add/", {"name": "website", "agent": agent.pk})
    token = re.search(r'<code id="new-link">(link_[^<]+)</code>', answer.text)
    assert token is not None
    assert "no-store" in answer["Cache-Control"]
    assert f"/api/public/chat/{token[1]}" in answer.text
    row = PublicLink.objects.get()
    assert (row.agent, row.created_by, public_links.usable_link(token[1])) == (agent, owner, row)
    text = client.get(LINKS).text
    assert row.prefix in text
    assert token[1] not in text


def test_only_links_to_ones_own_agents_are_made_and_seen(
    signed_in: Any, agent: Agent, owner: User, stranger: User, superuser: User, make_agent: Any
) -> None:
    foreign = make_agent(owner=stranger, name="foreign")
    link_to(foreign, "theirs")
    client = signed_in(owner)
    for wrong in ({"agent": foreign.pk}, {"agent": ""}, {"agent": agent.pk, "name": ""}):
        assert "errorlist" in client.post(f"{LINKS}add/", {"name": "n"} | wrong).text
    assert PublicLink.objects.count() == 1
    seen = client.get(LINKS).text
    assert "theirs" not in seen
    assert "foreign" not in seen
    assert "theirs" in signed_in(superuser).get(LINKS).text
    assert signed_in(superuser).post(f"{LINKS}add/", {"name": "n", "agent": foreign.pk}).status_code == 200
    assert PublicLink.objects.filter(agent=foreign).count() == 2


def test_a_link_is_revoked_after_a_confirmation_and_once(signed_in: Any, agent: Agent, owner: User) -> None:
    client, made = signed_in(owner), link_to(agent)
    chosen = {"action": "revoke", "_selected_action": made.row.pk}
    assert "website" in client.post(LINKS, chosen).text
    assert public_links.usable_link(made.token) is not None
    for _ in range(2):
        assert client.post(LINKS, chosen | {"confirmed": "yes"}).status_code == 302
    assert public_links.usable_link(made.token) is None


def test_nobody_elses_link_is_revoked_or_changed(signed_in: Any, agent: Agent, owner: User, stranger: User, make_agent: Any) -> None:
    theirs = link_to(make_agent(owner=stranger))
    client = signed_in(owner)
    client.post(LINKS, {"action": "revoke", "_selected_action": theirs.row.pk, "confirmed": "yes"})
    assert public_links.usable_link(theirs.token) is not None
    mine = link_to(agent)
    answer = client.post(f"{LINKS}{mine.row.pk}/change/", {"name": "another", "agent": agent.pk})
    assert answer.status_code == 403
    assert client.post(f"{LINKS}{mine.row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert PublicLink.objects.filter(name="website").count() == 2
