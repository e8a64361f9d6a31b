"""What the shared fixtures promise."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import settings
from django.utils import timezone

from backlog.models import Execution, Status
from fleet.models import Agent
from tests import environment


def test_the_tests_never_see_the_users_stores(valkey: redis.Redis) -> None:
    assert settings.DATA_DIR == environment.DATA_DIR
    assert settings.REDIS_URL == os.environ["REDIS_URL"]
    assert valkey.keys("*") == []


def test_an_agent_has_the_limits_it_was_made_with(make_agent: Callable[..., Agent]) -> None:
    made = make_agent(limit=2, depth=7, runtime={"kind": "http", "url": "http://127.0.0.1:9/"})
    made.refresh_from_db()
    assert (made.max_parallel_tasks, made.max_backlog_depth) == (2, 7)
    assert (made.runtime_kind, made.runtime) == ("http", {"url": "http://127.0.0.1:9/"})


def test_an_aged_row_is_older_in_all_its_times(agent: Agent, age_row: Callable[..., Execution]) -> None:
    row = Execution.objects.create(agent=agent, agent_name=agent.name, status=Status.QUEUED, message="m", timeout_seconds=60)
    aged = age_row(row, 3600)
    assert aged.queued_at < timezone.now() - timedelta(seconds=3599)
    assert aged.created_at == aged.queued_at
    assert aged.started_at is None


def test_until_returns_the_value_it_waited_for(until: Callable[..., Any]) -> None:
    values = iter([0, 0, 7])
    assert until(lambda: next(values)) == 7


def test_until_tells_the_last_value_after_its_deadline(until: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match="gave 0"):
        until(lambda: 0, seconds=0.05)
