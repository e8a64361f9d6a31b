"""An agent deleted with work in line and in its slots, and its name used again."""

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
from backlog.drafts import Draft
from backlog.models import Execution, Status
from capacity import keys, slots
from capacity.gate import gated
from capacity.leases import Lease
from capacity.manager import CapacityManager, Reject
from core.ids import new_id, new_token
from fleet.errors import AgentNotFound
from fleet.models import Agent, ApiKey, AuditEntry, Share
from runtime import housekeeping
from runtime.runtimes.base import Result
from runtime.services import agents, runs
from runtime.services.repair import comparing
from tests.agents.server import AgentServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

Until = Callable[..., Any]
Post = Callable[..., Any]
manager = CapacityManager()


@pytest.fixture
def single(make_agent: Callable[..., Agent], agent_server: AgentServer) -> Agent:
    """An agent of `agent_server` with one slot."""
    return make_agent(name="single", limit=1, runtime={"kind": "http", "url": agent_server.url})


@pytest.fixture
def delete(api: Callable[[User], APIClient], owner: User) -> Callable[..., Any]:
    """Deletes the agent `single`, over HTTP."""
    return lambda *, by=owner: api(by).delete("/api/agents/single/")


@pytest.fixture
def again(api: Callable[[User], APIClient], owner: User, agent_server: AgentServer) -> Callable[[], Agent]:
    """Makes a new agent of that name, over HTTP."""

    def make() -> Agent:
        body = {"name": "single", "runtime": {"kind": "http", "url": agent_server.url}, "max_parallel_tasks": 1}
        assert api(owner).post("/api/agents/", body, format="json").status_code == 201
        return Agent.objects.get(name="single", deleted_at=None)

    return make


@pytest.fixture
def submitted(post_task: Post, single: Agent) -> Callable[..., Execution]:
    """Submits to the living agent of that name; the row."""
    return lambda message="hello": Execution.objects.get(pk=post_task(message, to=single).json()["execution_id"])


def begin(row: Execution) -> runs.Begun:
    """Start it and die before its work is watched."""
    assert row.slot_token is not None
    begun = runs.begin_run(execution_id=row.pk, token=row.slot_token)
    assert begun is not None
    return begun


def seen(row: Execution) -> tuple[str, str, bool]:
    """The row's status, its code, and whether it holds a slot."""
    row.refresh_from_db()
    return row.status, row.error_code, row.slot_token is not None


def held() -> list[uuid.UUID]:
    """Who holds a slot under the name."""
    return [holder.execution_id for holder in slots.state("single").holders]


def kept(valkey: redis.Redis) -> list[str]:
    """What the slot store keeps under the name."""
    found = [key.decode() for key in valkey.keys("*single*")]
    found += [member.decode() for member in valkey.zrange(keys.leases(), 0, -1)]
    return found + (["version"] if valkey.hexists(keys.versions(), "single") else [])


GONE = (Status.CANCELLED, "agent_deleted", False)


def test_all_its_work_is_cancelled_its_keys_go_and_the_name_is_clean(
    delete: Any, again: Any, submitted: Any, api: Any, owner: User, agent_server: AgentServer, valkey: redis.Redis, until: Until
) -> None:
    running, *waiting = [submitted("hang"), *(submitted(f"waits {number}") for number in range(3))]

    def carry() -> None:
        try:
            runs.run_execution(execution_id=running.pk, token=running.slot_token)
        finally:
            connections.close_all()

    worker = threading.Thread(target=carry)
    worker.start()
    until(lambda: agent_server.active == 1)
    assert delete().status_code == 204
    assert [seen(row) for row in waiting] == [GONE] * 3
    assert delete().json()["code"] == "agent_not_found"
    worker.join(20)
    assert seen(running) == GONE
    assert (agent_server.terminated, agent_server.started) == ([str(running.pk)], [str(running.pk)])
    housekeeping.sweep()
    assert kept(valkey) == []
    # Its rows are read by their ids, and are nowhere else.
    assert api(owner).get(f"/api/executions/{running.pk}/").json()["error_code"] == "agent_deleted"
    assert api(owner).get("/api/executions/").json()["results"] == []
    again()
    assert api(owner).get("/api/agents/single/executions/").json()["results"] == []
    assert api(owner).get(f"/api/agents/single/executions/{running.pk}/").json()["code"] == "execution_not_found"
    assert api(owner).get("/api/agents/single/capacity").json()["active_slots"] == 0
    assert api(owner).get("/api/agents/single/queue/").json()["depth"] == 0
    assert api(owner).get("/api/agents/slots").json()["agents"]["single"]["queued"] == 0
    assert submitted().status == Status.RUNNING


def test_what_has_not_started_is_cancelled_with_it_and_nothing_is_kept(delete: Any, submitted: Any, valkey: redis.Redis) -> None:
    granted, waiting = submitted(), submitted()
    assert delete().status_code == 204
    assert [seen(granted), seen(waiting)] == [GONE, GONE]
    assert kept(valkey) == []
    deleted = Agent.objects.get(name="single")
    assert (deleted.cleared_at is not None, deleted.runtime) == (True, {})


def test_a_reused_name_counts_the_former_agents_last_run_until_it_has_stopped(
    delete: Any, again: Any, submitted: Any, api: Any, owner: User, valkey: redis.Redis
) -> None:
    last = submitted("secret of the former agent")
    begun = begin(last)
    delete()
    new = again()
    waiting = submitted("of the new agent")
    # The former run may still be at work at the same server: the new agent's one place is taken, and tells nothing of it.
    assert (waiting.status, held()) == (Status.QUEUED, [last.pk])
    [slot] = api(owner).get("/api/agents/single/capacity").json()["slots"]
    assert (slot["execution_id"], slot["message_preview"]) == (str(last.pk), "")
    housekeeping.run_once()
    assert (seen(waiting)[0], held()) == (Status.QUEUED, [last.pk])
    # The worker that carried it gives the slot back, and takes nothing of the new agent's line in its place.
    assert runs.end_run(begun, Result(response="done"), in_place=True) is None
    assert seen(last) == GONE
    housekeeping.sweep()
    assert (seen(waiting)[0], held()) == (Status.RUNNING, [waiting.pk])
    assert new.pk != last.agent_id
    assert Agent.objects.get(pk=last.agent_id).cleared_at is not None
    assert valkey.hexists(keys.versions(), "single")


def test_a_slot_that_the_former_agent_still_holds_can_be_released_by_force(
    delete: Any, again: Any, submitted: Any, api: Any, owner: User, stranger: User
) -> None:
    last = submitted("at a server that is gone")
    begin(last)
    delete()
    again()
    waiting = submitted("of the new agent")

    def release(*, by: User = owner, **body: Any) -> Any:
        return api(by).post("/api/agents/single/slots/release/", {"execution_id": str(last.pk)} | body, format="json")

    assert release(by=stranger, force=True).json()["code"] == "access_denied"
    assert (release().status_code, release().json()["status"]) == (202, "releasing")
    assert release(force=True).json()["limit_may_be_exceeded"] is True
    assert (seen(last), held()) == (GONE, [waiting.pk])
    # Nothing of it is left to release, and its rows show under the new agent as little as before.
    assert release(force=True).json()["code"] == "execution_not_found"


def test_an_emptied_store_gets_the_former_agents_run_back_without_its_message(
    delete: Any, again: Any, submitted: Any, valkey: redis.Redis
) -> None:
    last = submitted("secret of the former agent")
    begin(last)
    delete()
    again()
    valkey.flushdb()
    manager.refill()
    assert held() == [last.pk]
    assert slots.state("single").holders[0].message_preview == ""


def test_a_claim_put_back_in_line_after_the_deletion_is_ended_by_the_sweep(delete: Any, submitted: Any) -> None:
    first, second = submitted(), submitted()
    begin(first)
    delete()
    Execution.objects.filter(pk=second.pk).update(
        status=Status.QUEUED, completed_at=None, cancel_requested_at=None, error_code="", startable=True
    )
    assert manager.drain(second.agent_id) == ()
    housekeeping.sweep()
    assert seen(second) == GONE


def test_a_submit_that_looked_before_the_deletion_is_refused_in_line_and_ended_in_a_slot(
    delete: Any, submitted: Any, single: Agent, valkey: redis.Redis
) -> None:
    manager.refill()
    seen_before = gated(Agent.objects.filter(pk=single.pk)).get()
    delete()
    draft = Draft(id=new_id(), message="late", timeout_seconds=60)
    with pytest.raises(AgentNotFound):
        backlog.enqueue(agent=seen_before, draft=draft, limit=1)
    acquired = manager.acquire(agent=seen_before, draft=draft, overflow=Reject())
    [late] = acquired.admissions
    assert runs.begin_run(execution_id=late.execution_id, token=late.lease.token) is None
    housekeeping.sweep()
    assert seen(Execution.objects.get(pk=late.execution_id)) == GONE
    assert kept(valkey) == []


def test_a_handover_under_way_when_the_agent_is_deleted_starts_nothing(delete: Any, submitted: Any) -> None:
    first, second = submitted(), submitted()
    begun = begin(first)
    token = new_token()
    written, head = backlog.finish_and_claim_next(
        agent_id=first.agent_id, execution_id=first.pk, token=begun.lease.token, outcome=backlog.Outcome(response="done"), next_token=token
    )
    assert (written, head and head.pk) == (True, second.pk)
    delete()
    assert seen(second) == GONE
    following = Lease(agent="single", execution_id=second.pk, token=token, timeout_seconds=60)
    assert not backlog.start(execution_id=second.pk, token=token)
    manager.undo_claim(agent_id=first.agent_id, done=begun.lease, following=following)
    assert (seen(second), held()) == (GONE, [])


def test_posts_that_race_a_deletion_all_end(post_task: Post, delete: Any, make_agent: Callable[..., Agent], valkey: redis.Redis) -> None:
    agent = make_agent(name="single", limit=2, depth=500)
    answers: list[Any] = []

    def post_many() -> None:
        try:
            answers.extend(post_task(to=agent) for _ in range(10))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=post_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert delete().status_code == 204
    for thread in threads:
        thread.join(60)
    assert {answer.status_code for answer in answers} <= {202, 404}
    housekeeping.sweep()
    rows = Execution.objects.filter(agent=agent)
    assert len(answers) == 40
    assert rows.count() == sum(answer.status_code == 202 for answer in answers)
    assert {(row.status, row.error_code, row.slot_token) for row in rows} <= {(Status.CANCELLED, "agent_deleted", None)}
    assert kept(valkey) == []


def test_with_the_slot_store_away_the_deletion_holds_and_is_finished_later(
    delete: Any, submitted: Any, valkey: redis.Redis, store_out_of_reach: Any, age_row: Any
) -> None:
    granted, waiting = submitted(), submitted()
    store_out_of_reach(True)
    assert delete().status_code == 204
    assert [seen(granted), seen(waiting)] == [GONE, GONE]
    store_out_of_reach(False)
    age_row(granted, comparing.GIVING_SECONDS + 1)
    housekeeping.run_once()
    housekeeping.sweep()
    assert kept(valkey) == []


def test_a_cleared_agent_is_looked_at_no_more(delete: Any, submitted: Any, django_assert_max_num_queries: Any) -> None:
    submitted()
    delete()
    with django_assert_max_num_queries(1):
        agents.finish_deletions()


def test_deleting_is_the_owners_and_ends_the_agents_keys(
    delete: Any, api: Any, make_key: Callable[..., str], stranger: User, superuser: User, single: Agent
) -> None:
    key = make_key("agent", agent=single)
    assert delete(by=stranger).json()["code"] == "access_denied"
    assert delete(by=key).json()["code"] == "person_required"
    Share.objects.create(agent=single, user=stranger)
    assert delete(by=stranger).json()["detail"] == "Only the agent's owner can do this"
    assert delete(by=superuser).status_code == 204
    assert api(key).get("/api/agents/").json()["code"] == "invalid_token"
    assert ApiKey.objects.get().revoked_at is not None
    assert AuditEntry.objects.filter(agent=single, action="deleted", actor=superuser).exists()
