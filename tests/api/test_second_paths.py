"""Executions have two paths each: what is answered at the one is answered at their agent's, too."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from backlog.models import Execution
from fleet.models import Agent
from runtime.runtimes.base import Result
from runtime.services import runs
from tests.runtime.conftest import Api

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.fixture
def paths(api: Api, owner: User, agent: Agent) -> Callable[..., list[Any]]:
    """`paths(execution_id, "cancel", **body)`: the answers at both paths, the agent's first."""

    def post(execution_id: str, verb: str, *, headers: dict[str, str] | None = None, **body: Any) -> list[Any]:
        ends = [f"/api/agents/{agent.name}/executions/{execution_id}/{verb}/", f"/api/executions/{execution_id}/{verb}/"]
        return [api(owner).post(path, body, format="json", headers=headers) for path in ends]

    return post


def submitted(api: Api, owner: User, agent: Agent) -> str:
    """A task that has its slot; its id."""
    answer = api(owner).post(f"/api/agents/{agent.name}/task", {"message": "hello", "async_mode": True}, format="json")
    return str(answer.json()["execution_id"])


def carried(execution_id: str) -> str:
    """The task, ended well."""
    row = Execution.objects.get(pk=execution_id)
    assert row.slot_token is not None
    begun = runs.begin_run(execution_id=row.pk, token=row.slot_token)
    assert begun is not None
    runs.end_run(begun, Result(response="done"), in_place=False)
    return execution_id


def test_a_cancel(paths: Any, api: Api, owner: User, agent: Agent) -> None:
    running = submitted(api, owner, agent)
    row = Execution.objects.get(pk=running)
    assert row.slot_token is not None
    assert runs.begin_run(execution_id=row.pk, token=row.slot_token) is not None
    assert [(answer.status_code, answer.json()) for answer in paths(running, "cancel")] == [(202, {"status": "cancelling"})] * 2
    ended = carried(submitted(api, owner, agent))
    assert [(answer.status_code, answer.json()["code"]) for answer in paths(ended, "cancel")] == [(409, "already_finished")] * 2


def test_a_retry(paths: Any, api: Api, owner: User, agent: Agent) -> None:
    ended = carried(submitted(api, owner, agent))
    waiting = submitted(api, owner, agent)
    assert {answer.status_code for answer in paths(waiting, "retry")} == {409}
    key = {"Idempotency-Key": "again"}
    assert [answer.status_code for answer in paths(ended, "retry", headers=key)] == [202, 202]
    other = carried(waiting)
    told = [(answer.status_code, answer.json()["code"]) for answer in paths(other, "retry", headers=key)]
    assert told == [(422, "idempotency_mismatch")] * 2
    Agent.objects.filter(pk=agent.pk).update(max_parallel_tasks=1, max_backlog_depth=0)
    assert [(answer.status_code, answer.json()["code"]) for answer in paths(other, "retry")] == [(429, "backlog_full")] * 2


def test_the_log_of_nothing(api: Api, owner: User, agent: Agent) -> None:
    unknown = "0198f000-0000-7000-8000-000000000000"
    for path in (f"/api/agents/{agent.name}/executions/{unknown}/events/", f"/api/executions/{unknown}/events/"):
        answer = api(owner).get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "execution_not_found")
