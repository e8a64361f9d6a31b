"""Controls that meet the end of a run, repair and each other: one outcome each, and nobody's slot but its own is freed."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connection, connections
from rest_framework.test import APIClient

from backlog import services as backlog
from backlog.models import TERMINAL, Execution, Status
from fleet.models import Agent
from runtime import housekeeping
from runtime.runtimes.base import Result
from runtime.services import repair, runs
from tests import seen
from tests.agents.server import AgentServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

ROUNDS = 4


def sql(query: str) -> list[dict[str, Any]]:
    """The rows of a query, as dicts."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def at_once(*acts: Callable[[], object]) -> None:
    """All of them, each in a thread of its own; what one raises is raised here."""
    barrier = threading.Barrier(len(acts))

    def perform(act: Callable[[], object]) -> None:
        try:
            barrier.wait(30)
            act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(acts)) as pool:
        for done in [pool.submit(perform, act) for act in acts]:
            done.result(60)


@pytest.fixture
def single(make_agent: Callable[..., Agent], agent_server: AgentServer) -> Agent:
    """An agent of `agent_server` with one slot."""
    return make_agent(name="single", limit=1, runtime={"kind": "http", "url": agent_server.url})


@pytest.fixture
def begin(post_task: Callable[..., Any], single: Agent) -> Callable[[], runs.Begun]:
    """Submits a task and begins it, as a worker that nobody watches."""

    def start() -> runs.Begun:
        row = Execution.objects.get(pk=post_task(to=single).json()["execution_id"])
        assert row.slot_token is not None
        begun = runs.begin_run(execution_id=row.pk, token=row.slot_token)
        assert begun is not None
        return begun

    return start


@pytest.fixture
def post(api: Callable[[User], APIClient], owner: User) -> Callable[..., int]:
    """Posts to a control as the owner; the status."""

    def send(path: str, **body: Any) -> int:
        status: int = api(owner).post(f"/api/{path}", body, format="json").status_code
        assert status < 500
        return status

    return send


def end_of(begun: runs.Begun) -> Callable[[], object]:
    """The run's own end, as its worker writes it; what it takes in place is put back in line as by a worker that leaves."""

    def end() -> None:
        following = runs.end_run(begun, Result(response="done"), in_place=True)
        if following is not None:
            runs.end_run(following, Result(error_code="worker_lost", error="left"), in_place=False)

    return end


def fenced(begun: runs.Begun) -> Callable[[], object]:
    """Repair, that takes the run for lost and hears from its agent."""

    def repaired() -> None:
        ids = {"execution_id": begun.row.pk, "token": begun.lease.token}
        if backlog.fence_lost(**ids, error_code="worker_lost", error="lost"):
            repair.terminate_lost(**ids)

    return repaired


def test_a_forced_release_a_cancel_repair_and_the_end_of_the_run_make_one_outcome(
    begin: Any, post: Any, post_task: Any, single: Agent, valkey: redis.Redis
) -> None:
    for _ in range(ROUNDS):
        begun = begin()
        waiting = Execution.objects.get(pk=post_task("waits", to=single).json()["execution_id"])
        release = {"execution_id": str(begun.row.pk), "force": True}
        at_once(
            end_of(begun),
            fenced(begun),
            lambda release=release: post("agents/single/slots/release/", **release),
            lambda begun=begun: post(f"executions/{begun.row.pk}/cancel/"),
        )
        row = Execution.objects.get(pk=begun.row.pk)
        assert (row.status in TERMINAL, row.slot_token) == (True, None)
        assert (row.status, row.error_code) in {
            (Status.SUCCESS, ""), (Status.CANCELLED, "cancelled"), (Status.FAILED, "lease_lost"), (Status.FAILED, "worker_lost"),
        }  # fmt: skip
        # The one that waited has the slot, or has had it; nobody has freed it under its feet.
        seen.check_rest(sql, valkey, names=["single"], most_slots={"single": 1})
        waiting.refresh_from_db()
        if waiting.status == Status.RUNNING:
            post("agents/single/slots/release/", execution_id=str(waiting.pk), force=True)
        housekeeping.run_once()
        seen.check_rest(sql, valkey, names=["single"], most_slots={"single": 1})


def test_a_deletion_a_clearing_and_a_handover_leave_nothing(
    begin: Any, post: Any, post_task: Any, api: Any, owner: User, single: Agent, agent_server: AgentServer, valkey: redis.Redis
) -> None:
    for _ in range(ROUNDS):
        name = Agent.objects.get(deleted_at=None)
        begun = runs.begin_run(**_granted(post_task(to=name).json()["execution_id"]))
        assert begun is not None
        for _ in range(3):
            post_task("waits", to=name)
        at_once(
            end_of(begun),
            lambda: api(owner).delete("/api/agents/single/"),
            lambda: post("agents/single/queue/clear/"),
            lambda: post("agents/single/pause/"),
        )
        housekeeping.run_once()
        assert not Execution.objects.exclude(status__in=TERMINAL, slot_token=None).exists()
        assert seen.holders_of(valkey) == []
        body = {"name": "single", "runtime": {"kind": "http", "url": agent_server.url}, "max_parallel_tasks": 1}
        assert api(owner).post("/api/agents/", body, format="json").status_code == 201


def _granted(execution_id: str) -> dict[str, Any]:
    row = Execution.objects.get(pk=execution_id)
    return {"execution_id": row.pk, "token": row.slot_token}
