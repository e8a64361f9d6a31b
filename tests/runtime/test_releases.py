"""One slot given back by its owner, when its work has stopped or by force."""

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connections
from rest_framework.test import APIClient

from backlog import services as backlog
from backlog.models import Execution, Status
from capacity import slots
from fleet.models import Agent, AuditEntry, Share
from runtime import housekeeping
from runtime.runtimes.base import Result
from runtime.services import releases, runs
from runtime.services.repair import comparing
from tests.agents.server import AgentServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

Until = Callable[..., Any]
Post = Callable[..., Any]


@pytest.fixture
def single(make_agent: Callable[..., Agent], agent_server: AgentServer) -> Agent:
    """An agent of `agent_server` with one slot."""
    return make_agent(limit=1, runtime={"kind": "http", "url": agent_server.url})


@pytest.fixture
def release(api: Callable[[User], APIClient], owner: User, single: Agent) -> Callable[..., Any]:
    """Gives the slot of an execution of `single` back: `release(id, force=…, by=…)`."""

    def post(execution_id: object, *, by: Any = owner, **body: Any) -> Any:
        return api(by).post(f"/api/agents/{single.name}/slots/release/", {"execution_id": str(execution_id)} | body, format="json")

    return post


@pytest.fixture
def submitted(post_task: Post, single: Agent) -> Callable[[str], Execution]:
    """Submits to `single`; the row."""
    return lambda message: Execution.objects.get(pk=post_task(message, to=single).json()["execution_id"])


def begin(row: Execution) -> runs.Begun:
    """Start it and die before its work is watched."""
    assert row.slot_token is not None
    begun = runs.begin_run(execution_id=row.pk, token=row.slot_token)
    assert begun is not None
    return begun


def carried(row: Execution) -> threading.Thread:
    """A worker's thread that carries the row."""

    def carry() -> None:
        try:
            runs.run_execution(execution_id=row.pk, token=row.slot_token)
        finally:
            connections.close_all()

    thread = threading.Thread(target=carry)
    thread.start()
    return thread


def seen(row: Execution) -> tuple[str, str, bool]:
    """The row's status, its code, and whether it holds a slot."""
    row.refresh_from_db()
    return row.status, row.error_code, row.slot_token is not None


def held(agent: Agent) -> list[uuid.UUID]:
    """Who holds a slot of the agent."""
    return [holder.execution_id for holder in slots.state(agent.name).holders]


def told(answer: Any) -> tuple[int, str, bool]:
    """Status, outcome, and whether the limit may be exceeded."""
    return answer.status_code, answer.json()["status"], answer.json()["limit_may_be_exceeded"]


def test_a_running_ones_slot_is_freed_when_its_work_has_stopped(
    release: Any, submitted: Any, single: Agent, agent_server: AgentServer, until: Until
) -> None:
    first, second = submitted("hang first"), submitted("second")
    thread = carried(first)
    until(lambda: agent_server.active == 1)
    answer = release(first.pk)
    assert told(answer) == (202, "releasing", False)
    assert answer.json()["message"] == "The slot is freed as soon as its work has stopped"
    thread.join(20)
    until(lambda: seen(second)[0] == Status.SUCCESS)
    assert seen(first) == (Status.CANCELLED, "cancelled", False)
    assert (agent_server.peak, agent_server.terminated) == (1, [str(first.pk)])
    assert told(release(first.pk)) == (200, "released", False)


def test_what_has_not_started_gives_its_slot_to_the_next_at_once(release: Any, submitted: Any, single: Agent) -> None:
    first, second = submitted("first"), submitted("second")
    assert told(release(first.pk)) == (200, "released", False)
    assert seen(first) == (Status.CANCELLED, "cancelled", False)
    assert held(single) == [second.pk]


def test_force_frees_at_once_fences_the_run_and_tells_its_work_to_stop(
    release: Any, submitted: Any, single: Agent, agent_server: AgentServer, until: Until
) -> None:
    first, second = submitted("hang first"), submitted("second")
    thread = carried(first)
    until(lambda: agent_server.active == 1)
    answer = release(first.pk, force=True)
    assert told(answer) == (200, "released", True)
    assert answer.json()["message"] == "The limit may be exceeded until the work that held this slot has stopped"
    assert seen(first) == (Status.FAILED, "lease_lost", False)
    assert held(single) == [second.pk]
    # The worker hears of it by the row, asks the agent to end it, and changes nothing any more.
    thread.join(20)
    assert agent_server.terminated == [str(first.pk)]
    assert seen(first) == (Status.FAILED, "lease_lost", False)
    assert held(single) == [second.pk]
    assert [entry.after for entry in AuditEntry.objects.all()] == [{"execution_id": str(first.pk), "force": True}]
    assert told(release(first.pk, force=True)) == (200, "released", False)


def test_what_nobody_carries_any_more_is_ended_by_a_task(
    release: Any, submitted: Any, agent_server: AgentServer, valkey: redis.Redis
) -> None:
    first = submitted("first")
    begin(first)
    published = valkey.llen("celery:trinity")
    release(first.pk, force=True)
    assert valkey.llen("celery:trinity") == published + 1
    assert releases.end_released(execution_id=first.pk) is True
    assert agent_server.terminated == [str(first.pk)]
    assert releases.end_released(execution_id=uuid.uuid4()) is False


def test_a_late_result_of_a_released_run_changes_nothing(release: Any, submitted: Any, single: Agent) -> None:
    first, second = submitted("first"), submitted("second")
    late = begin(first)
    release(first.pk, force=True)
    assert runs.end_run(late, Result(response="late"), in_place=True) is None
    assert seen(first) == (Status.FAILED, "lease_lost", False)
    assert held(single) == [second.pk]
    second.refresh_from_db()
    assert second.status == Status.RUNNING


def test_a_cancel_that_was_asked_for_before_decides_the_outcome(release: Any, submitted: Any) -> None:
    first = submitted("first")
    begin(first)
    assert told(release(first.pk)) == (202, "releasing", False)
    assert told(release(first.pk, force=True)) == (200, "released", True)
    assert seen(first) == (Status.CANCELLED, "cancelled", False)


def test_a_lost_runs_slot_that_waits_for_its_agents_word_is_freed_by_force_alone(release: Any, submitted: Any, single: Agent) -> None:
    first, second = submitted("first"), submitted("second")
    lost = begin(first)
    backlog.fence_lost(execution_id=first.pk, token=lost.lease.token, error_code="worker_lost", error="lost")
    assert told(release(first.pk)) == (202, "releasing", False)
    assert held(single) == [first.pk]
    assert told(release(first.pk, force=True)) == (200, "released", True)
    assert seen(first) == (Status.FAILED, "worker_lost", False)
    assert held(single) == [second.pk]


def test_nobody_elses_slot_is_freed(release: Any, submitted: Any, post_task: Post, make_agent: Callable[..., Agent], single: Agent) -> None:
    other = make_agent(limit=1)
    theirs = Execution.objects.get(pk=post_task(to=other).json()["execution_id"])
    mine, waiting = submitted("mine"), submitted("waits")
    for execution_id in (theirs.pk, uuid.uuid4()):
        answer = release(execution_id, force=True)
        assert (answer.status_code, answer.json()["code"]) == (404, "execution_not_found")
    answer = release(waiting.pk, force=True)
    assert (answer.status_code, answer.json()["code"]) == (409, "no_slot_held")
    assert answer.json()["detail"] == f"Execution {waiting.pk} holds no slot"
    assert (held(single), held(other)) == ([mine.pk], [theirs.pk])


def test_with_the_slot_store_away_force_is_carried_out_when_it_is_back(
    release: Any, submitted: Any, single: Agent, store_out_of_reach: Any, age_row: Any
) -> None:
    first, second = submitted("first"), submitted("second")
    begin(first)
    store_out_of_reach(True)
    assert told(release(first.pk, force=True)) == (202, "releasing", True)
    assert seen(first) == (Status.FAILED, "lease_lost", False)
    store_out_of_reach(False)
    assert held(single) == [first.pk]
    age_row(first, comparing.GIVING_SECONDS + 1)
    housekeeping.run_once()
    assert held(single) == [second.pk]


def test_a_release_is_the_owners_and_names_one_execution(
    release: Any, submitted: Any, stranger: User, single: Agent, make_key: Callable[..., str]
) -> None:
    first = submitted("first")
    assert release(first.pk, by=stranger).json()["code"] == "access_denied"
    assert release(first.pk, by=make_key("agent", agent=single)).json()["code"] == "person_required"
    Share.objects.create(agent=single, user=stranger)
    assert release(first.pk, by=stranger).json()["code"] == "owner_required"
    assert release("all").json()["detail"] == "execution_id must be a UUID"
    assert release(first.pk, force="yes").json()["detail"] == "force must be true or false"
    assert release(first.pk, all=True).json()["code"] == "unknown_field"
    assert held(single) == [first.pk]
