"""Keys and shares, beside the people and agents that all tests have."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet.models import Agent, Share
from fleet.principals import Principal
from fleet.services import NewKey, create_key


@pytest.fixture
def make_key() -> Callable[..., NewKey]:
    """Makes API keys: `make_key(owner, "agent", agent=…)`."""

    def make(owner: User, scope: str, **columns: Any) -> NewKey:
        return create_key(owner=owner, scope=scope, name=f"{scope} key", **columns)

    return make


@pytest.fixture
def friend(db: None, agent: Agent) -> User:
    """A person with whom `agent` is shared."""
    user = User.objects.create_user("frida", password="frida-password")
    Share.objects.create(agent=agent, user=user)
    return user


@pytest.fixture
def principals(
    owner: User,
    friend: User,
    stranger: User,
    superuser: User,
    agent: Agent,
    make_agent: Callable[..., Agent],
    make_key: Callable[..., NewKey],
) -> dict[str, Principal]:
    """One of each kind, as seen from `agent`."""
    other = make_agent(owner=stranger)
    return {
        "owner": Principal.of_user(owner),
        "owner's key": Principal.of_key(make_key(owner, "user").row),
        "friend": Principal.of_user(friend),
        "stranger": Principal.of_user(stranger),
        "superuser": Principal.of_user(superuser),
        "own agent's key": Principal.of_key(make_key(owner, "agent", agent=agent).row),
        "another agent's key": Principal.of_key(make_key(stranger, "agent", agent=other).row),
        "system key": Principal.of_key(make_key(superuser, "system").row),
    }
