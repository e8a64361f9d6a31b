"""An agent that is reached elsewhere from now on: what runs goes on where it began, and is told to end there."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db.models import F
from rest_framework.test import APIClient

from backlog.models import Status
from capacity.manager import CapacityManager
from core.conf import conf
from fleet import reach
from fleet.models import Agent, FormerRuntime
from runtime import dispatch, housekeeping, tasks
from runtime.services import releases, repair, retention
from runtime.services.keeper import margin_seconds
from runtime.services.submit import Submitted
from tests.ageing import age_ending
from tests.agents.server import AgentServer
from tests.runtime.repairing import begin, end_lease, hear_all, held, kinds, messages, row, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

Change = Callable[..., Any]


@pytest.fixture(autouse=True)
def _open_gate(valkey: redis.Redis) -> None:
    CapacityManager().refill()
    repair.repair_lost()


@pytest.fixture
def other_server() -> Iterator[AgentServer]:
    """Where the agent is reached after the change."""
    with AgentServer() as server:
        yield server


@pytest.fixture
def single(make_agent: Callable[..., Agent], agent_server: AgentServer) -> Agent:
    """An agent of `agent_server` with one slot."""
    return make_agent(limit=1, runtime={"kind": "http", "url": agent_server.url})


@pytest.fixture
def change(api: Callable[[User], APIClient], superuser: User, single: Agent) -> Change:
    """Changes the runtime of `single` over HTTP: `change(url=…)`."""

    def patch(**runtime: Any) -> None:
        answer = api(superuser).patch(f"/api/agents/{single.name}/", {"runtime": runtime}, format="json")
        assert answer.status_code == 200, answer.content

    return patch


def lose(valkey: redis.Redis, run: Submitted) -> None:
    """Its worker is lost: its lease ends, and repair fences it."""
    end_lease(valkey, run)
    hear_all(valkey)
    repair.repair_lost()


def ask(run: Submitted) -> None:
    """As the task that asks does."""
    tasks.terminate_lost(str(run.execution_id), str(row(run).slot_token))


def test_a_lost_run_is_ended_at_the_server_that_has_it(
    change: Change, single: Agent, agent_server: AgentServer, other_server: AgentServer, valkey: redis.Redis
) -> None:
    lost = submit(single)
    begin(lost)
    change(url=other_server.url)
    lose(valkey, lost)
    ask(lost)
    # The new server has never heard of it: its word would have freed a slot whose work goes on.
    assert (agent_server.terminated, other_server.terminated) == ([str(lost.execution_id)], [])
    assert held(single) == []


def test_the_slot_waits_for_the_server_that_has_the_work(
    change: Change, single: Agent, agent_server: AgentServer, other_server: AgentServer, valkey: redis.Redis
) -> None:
    lost = submit(single)
    begin(lost)
    change(url=other_server.url)
    agent_server.close()
    lose(valkey, lost)
    ask(lost)
    assert (row(lost).status, held(single)) == (Status.FAILED, [str(lost.execution_id)])


def test_a_server_that_was_replaced_by_a_command_still_has_its_runs(
    change: Change, single: Agent, agent_server: AgentServer, valkey: redis.Redis
) -> None:
    lost = submit(single)
    begin(lost)
    change(kind="command", argv=["cat"])
    lose(valkey, lost)
    hear_all(valkey)
    age_ending(valkey, row(lost).slot_token, 10 * conf.lease_seconds)
    repair.repair_lost()
    assert held(single) == [str(lost.execution_id)]
    assert messages(valkey, dispatch.TERMINATE_LOST) == 1
    ask(lost)
    assert (agent_server.terminated, held(single)) == ([str(lost.execution_id)], [])


def test_a_command_that_was_replaced_by_a_server_ends_with_its_lease(
    change: Change, make_agent: Callable[..., Agent], single: Agent, agent_server: AgentServer, valkey: redis.Redis
) -> None:
    change(kind="command", argv=["cat"])
    FormerRuntime.objects.update(replaced_at=F("replaced_at") - timedelta(minutes=1))
    lost = submit(single)
    begin(lost)
    change(kind="http", url=agent_server.url)
    lose(valkey, lost)
    assert (held(single), messages(valkey, dispatch.TERMINATE_LOST)) == ([str(lost.execution_id)], 0)
    age_ending(valkey, row(lost).slot_token, 2 * margin_seconds())
    repair.repair_lost()
    assert (held(single), agent_server.terminated) == ([], [])
    assert kinds(lost) == ["worker_lost", "slot_given_back"]


def test_a_new_key_for_the_same_server_is_the_one_it_is_asked_with(
    change: Change, single: Agent, agent_server: AgentServer, valkey: redis.Redis
) -> None:
    lost = submit(single)
    begin(lost)
    change(headers={"X-Key": "new"})
    assert not FormerRuntime.objects.exists()
    lose(valkey, lost)
    ask(lost)
    assert (agent_server.terminated, held(single)) == ([str(lost.execution_id)], [])


def test_what_began_after_the_change_is_ended_at_the_new_server(
    change: Change, single: Agent, agent_server: AgentServer, other_server: AgentServer, valkey: redis.Redis
) -> None:
    change(url=other_server.url)
    FormerRuntime.objects.update(replaced_at=F("replaced_at") - timedelta(minutes=1))
    lost = submit(single)
    begin(lost)
    lose(valkey, lost)
    ask(lost)
    assert (agent_server.terminated, other_server.terminated) == ([], [str(lost.execution_id)])


def test_one_that_was_about_to_begin_when_it_changed_is_ended_at_both(
    change: Change, single: Agent, agent_server: AgentServer, other_server: AgentServer, valkey: redis.Redis
) -> None:
    lost = submit(single)
    change(url=other_server.url)
    begin(lost)
    lose(valkey, lost)
    ask(lost)
    assert agent_server.terminated == other_server.terminated == [str(lost.execution_id)]
    assert held(single) == []


def test_a_forced_release_asks_the_server_that_has_the_work(
    change: Change, single: Agent, owner: User, api: Callable[[User], APIClient], agent_server: AgentServer, other_server: AgentServer
) -> None:
    run = submit(single)
    begin(run)
    change(url=other_server.url)
    body = {"execution_id": str(run.execution_id), "force": True}
    assert api(owner).post(f"/api/agents/{single.name}/slots/release/", body, format="json").status_code == 200
    assert releases.end_released(execution_id=run.execution_id) is True
    assert (agent_server.terminated, other_server.terminated) == ([str(run.execution_id)], [])


def test_former_servers_are_forgotten_with_the_last_run_that_may_be_there_and_with_their_agent(
    change: Change, single: Agent, owner: User, api: Callable[[User], APIClient], other_server: AgentServer
) -> None:
    change(url=other_server.url)
    change(kind="command", argv=["cat"])
    assert [former.runtime["url"] for former in FormerRuntime.objects.order_by("pk")][1] == other_server.url
    FormerRuntime.objects.filter(kind="http", pk=FormerRuntime.objects.earliest("pk").pk).update(
        replaced_at=F("replaced_at") - reach.KEPT - timedelta(minutes=1)
    )
    retention.forget_old()
    assert FormerRuntime.objects.count() == 1
    assert api(owner).delete(f"/api/agents/{single.name}/").status_code == 204
    housekeeping.sweep()
    assert not FormerRuntime.objects.exists()
