"""Doing again all that match."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from backlog.models import Execution, Status
from fleet.models import Agent
from runtime.services import retrying


@pytest.fixture
def retry_all(api: Any, owner: Any) -> Callable[..., Any]:
    """Does again what matches: `retry_all(by=…, status=["failed"], …)`."""

    def post(*, by: Any = owner, **filters: Any) -> Any:
        return api(by).post("/api/executions/retry/", filters, format="json")

    return post


def ended(agent: Agent, status: str = Status.FAILED, **columns: Any) -> Execution:
    """One of the agent's that ended so."""
    at = timezone.now()
    values = {"message": "again", "timeout_seconds": 60, "started_at": at, "completed_at": at, "error_code": "agent_error"} | columns
    return Execution.objects.create(agent=agent, agent_name=agent.name, status=status, **values)


def again() -> list[Any]:
    """What was done again, by which it does again."""
    return list(Execution.objects.filter(triggered_by="retry").order_by("created_at", "id").values_list("retry_of", flat=True))


def test_what_failed_or_was_cancelled_and_matches_is_submitted_anew_and_never_twice(retry_all, make_agent):
    one, two = make_agent(depth=9), make_agent()
    failed, cancelled = ended(one), ended(one, Status.CANCELLED, error_code="cancelled")
    ended(one, Status.SUCCESS, error_code="")
    ended(two)
    assert retry_all(agent=one.name, dry_run=True).json() == {"retried": 2, "refused": 0, "left": 0}
    assert again() == []
    assert retry_all(agent=one.name).json() == {"retried": 2, "refused": 0, "left": 0}
    assert again() == [failed.pk, cancelled.pk]
    assert retry_all(agent=one.name).json() == {"retried": 0, "refused": 0, "left": 0}


def test_what_succeeded_is_done_again_only_where_that_is_said(retry_all, agent):
    row = ended(agent, Status.SUCCESS, error_code="")
    assert retry_all(agent=agent.name).json()["retried"] == 0
    assert retry_all(agent=agent.name, status=["success", "running"]).json()["retried"] == 1
    assert again() == [row.pk]


def test_every_filter_of_the_list_narrows_it(retry_all, agent, owner):
    wanted = ended(agent, error_code="timeout", message="Sort the Mail", submitted_by=owner, triggered_by="chat")
    for _ in range(2):
        ended(agent)
    for filters in (
        {"error_code": "timeout"},
        {"text": "sort the mail"},
        {"mine": True},
        {"triggered_by": "chat"},
        {"ids": [str(wanted.pk)]},
    ):
        assert retry_all(**filters, dry_run=True).json()["retried"] == 1, filters
    assert retry_all(mine=False, dry_run=True).json()["retried"] == 3


def test_a_full_line_refuses_the_rest_of_its_agent_and_nobody_elses(retry_all, make_agent):
    small, large = make_agent(limit=1, depth=1), make_agent()
    for agent in (small, small, small, large):
        ended(agent)
    assert retry_all(status=["failed"]).json() == {"retried": 3, "refused": 1, "left": 0}


def test_a_call_does_so_many_and_the_next_goes_on(retry_all, make_agent, monkeypatch):
    monkeypatch.setattr(retrying, "MOST_RETRIED", 2)
    agent = make_agent(limit=1, depth=9)
    rows = [ended(agent).pk for _ in range(5)]
    assert [retry_all(agent=agent.name).json() for _ in range(3)] == [
        {"retried": 2, "refused": 0, "left": 3},
        {"retried": 2, "refused": 0, "left": 1},
        {"retried": 1, "refused": 0, "left": 0},
    ]
    assert again() == rows


def test_what_the_caller_may_not_see_or_nobody_can_use_is_passed_over(retry_all, stranger, agent, make_agent):
    gone = make_agent(deleted_at=timezone.now())
    ended(agent)
    ended(gone)
    assert retry_all(by=stranger, status=["failed"]).json()["retried"] == 0
    assert retry_all(agent=gone.name).json()["retried"] == 0


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"dry_run": True},
        {"dry_run": "yes"},
        {"ids": []},
        {"ids": ["x"]},
        {"text": "\0"},
        {"mine": 1},
        {"all": True},
        {"status": ["odd"]},
    ],
)
def test_what_names_nothing_or_nonsense_is_refused(retry_all, agent, filters):
    ended(agent)
    assert retry_all(**filters).status_code == 400
    assert again() == []


def test_a_list_that_is_no_object_is_refused(api, owner):
    assert api(owner).post("/api/executions/retry/", [1], format="json").status_code == 400


@pytest.mark.django_db(transaction=True)
def test_two_at_once_do_none_twice(retry_all, make_agent):
    agent = make_agent(limit=1, depth=50)
    rows = {ended(agent).pk for _ in range(8)}

    def call() -> None:
        try:
            answers.append(retry_all(agent=agent.name).json()["retried"])
        finally:
            connections.close_all()

    answers: list[int] = []
    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answers) == 8
    assert sorted(again()) == sorted(rows)
