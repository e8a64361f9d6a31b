"""What every operation of the contract answers alike, asked of each: one that is added is asked as well."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from fleet.models import Agent
from fleet.services import create_key
from tests import contract

pytestmark = [pytest.mark.flows, pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

Api = Callable[[User | str | None], APIClient]


@pytest.fixture
def ask(agent: Agent) -> Callable[..., list[str]]:
    """`ask(client, code, …)`: the operations that answered otherwise than with this status, of those that `which` takes."""

    def every(
        client: APIClient, code: int, *, which: Callable[[dict[str, Any]], bool] = lambda _: True, query: str = "", **more: Any
    ) -> list[str]:
        asked = [
            (method, contract.filled(path, found, name=agent.name), found) for method, path, found in contract.operations() if which(found)
        ]
        assert asked
        return list(_otherwise(client, code, asked, query=query, **more))

    return every


def _otherwise(client: APIClient, code: int, asked: list[tuple[str, str, dict[str, Any]]], *, query: str, **more: Any) -> Iterator[str]:
    for method, path, found in asked:
        answer = getattr(client, method)(path + query, **({"format": "json"} | more))
        if answer.status_code != code:
            yield f"{method.upper()} {path}{query} ({found['operationId']}): {answer.status_code} {answer.content[:200]!r}"


@pytest.fixture
def system_key(superuser: User) -> str:
    """A key for the house's own services."""
    return create_key(owner=superuser, scope="system", name="caller").key


def _takes_body(found: dict[str, Any]) -> bool:
    return "415" in found["responses"] and not _by_link(found)


def _internal(found: dict[str, Any]) -> bool:
    return bool(found["operationId"].startswith("internal"))


def _by_link(found: dict[str, Any]) -> bool:
    """Those for the holders of a link look at it first, and tell nothing to anybody else."""
    return bool(found["operationId"].startswith(("public_chat", "public_execution")))


def test_without_credentials_nobody_is_answered(ask: Any, api: Api) -> None:
    assert ask(api(None), 401, which=contract.needs_credentials) == []


def test_a_parameter_that_is_not_named_is_refused(ask: Any, api: Api, superuser: User, system_key: str) -> None:
    assert ask(api(superuser), 400, which=lambda found: not _internal(found) and not _by_link(found), query="?surely_not=1") == []
    assert ask(api(system_key), 400, which=_internal, query="?surely_not=1") == []


def test_nobody_speaks_for_an_agent_whose_key_they_do_not_have(ask: Any, api: Api, superuser: User) -> None:
    assert ask(api(superuser), 403, which=contract.needs_credentials, headers={"X-Source-Agent": "somebody"}) == []


def test_a_body_that_is_not_json_is_refused(ask: Any, api: Api, superuser: User, system_key: str) -> None:
    text = {"format": None, "data": "a=b", "content_type": "text/plain"}
    theirs = [lambda found: _takes_body(found) and not _internal(found), lambda found: _takes_body(found) and _internal(found)]
    for client, which in zip((api(superuser), api(system_key)), theirs, strict=True):
        assert ask(client, 415, which=which, **text) == []
