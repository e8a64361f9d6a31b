"""Callers, and tasks at any stage of their lives, made as a caller and a worker would make them."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from rest_framework.test import APIClient

from backlog.models import Execution, IdempotencyKey
from fleet.models import Agent
from fleet.services import create_key
from runtime.services import runs

Api = Callable[[User | str | None], APIClient]


@pytest.fixture
def post_task(api: Api, owner: User, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Posts a task: `post_task("text", to=agent, by=owner, headers={…}, **body)`; asynchronous unless the body says otherwise."""

    def post(
        message: str = "hello", *, to: Agent | None = None, by: User | str = owner, headers: dict[str, str] | None = None, **body: Any
    ) -> Any:
        to = to or request.getfixturevalue("agent")
        data = {"message": message, "async_mode": True} | body
        sent = {name: value for name, value in data.items() if value is not None}
        return api(by).post(f"/api/agents/{to.name}/task", sent, format="json", headers=headers)

    return post


@pytest.fixture
def make_key(owner: User) -> Callable[..., str]:
    """Makes API keys: `make_key("agent", agent=…, owner=…)` is the key itself."""

    def make(scope: str, *, owner: User = owner, agent: Agent | None = None) -> str:
        return create_key(owner=owner, scope=scope, name=f"{scope} key", agent=agent).key

    return make


@pytest.fixture
def carry() -> Callable[[str | uuid.UUID], Execution]:
    """Runs a granted execution as a worker would, and what is in line after it; returns the row as it is then."""

    def run(execution_id: str | uuid.UUID) -> Execution:
        granted = Execution.objects.get(pk=execution_id)
        assert granted.slot_token is not None
        runs.run_execution(execution_id=granted.pk, token=granted.slot_token)
        return Execution.objects.get(pk=execution_id)

    return run


@pytest.fixture
def age_key() -> Callable[[float], None]:
    """Makes every idempotency key older by so many seconds."""

    def age(seconds: float) -> None:
        IdempotencyKey.objects.update(created_at=F("created_at") - timedelta(seconds=seconds))

    return age
