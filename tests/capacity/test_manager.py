"""The facade: rows and gate as one, under contention and at the seams."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.db import connection, connections

from backlog import services as backlog
from backlog.drafts import Draft, Queued
from backlog.errors import KeyTaken
from backlog.models import Execution, Status
from capacity import slots
from capacity.errors import AgentPaused, AtCapacity, SlotsUnavailable
from capacity.gate import gated
from capacity.leases import Admission, Admitted, Lease
from capacity.manager import CapacityManager, Reject
from core.ids import new_id, new_token
from fleet.models import Agent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
manager = CapacityManager()


def draft(message: str = "hello", **fields: Any) -> Draft:
    """A request of a minute."""
    return Draft(id=new_id(), message=message, timeout_seconds=60, **fields)


def in_line(*, agent: Agent, draft: Draft, full: Exception) -> Queued:
    """Overflow into the line."""
    return backlog.enqueue(agent=agent, draft=draft, limit=agent.max_parallel_tasks)


def fresh(agent: Agent) -> Agent:
    """The agent as a request reads it."""
    return gated(Agent.objects.filter(pk=agent.pk)).get()


def held(agent: Agent) -> dict[str, int]:
    """`{execution id: slot number}` of the gate."""
    return {str(holder.execution_id): holder.number for holder in slots.state(agent.name).holders}


def in_threads(work: Callable[[], Any], count: int) -> list[Any]:
    """What `count` threads return that do `work` at the same time."""
    answers: list[Any] = []
    barrier = threading.Barrier(count)

    def run() -> None:
        barrier.wait()
        try:
            answers.append(work())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == count
    return answers


def test_a_slot_released_between_full_and_queued_starts_the_row_at_once(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1)
    first = manager.acquire(agent=fresh(agent), draft=draft("first"), overflow=Reject())
    assert isinstance(first.outcome, Admitted)

    def released_meanwhile(*, agent: Agent, draft: Draft, full: Exception) -> Queued:
        """The last slot frees after the gate said full, before the row is committed."""
        assert isinstance(first.outcome, Admitted)
        slots.release(lease=first.outcome.lease)
        return in_line(agent=agent, draft=draft, full=full)

    second = draft("second")
    acquired = manager.acquire(agent=fresh(agent), draft=second, overflow=released_meanwhile)
    assert [one.execution_id for one in acquired.admissions] == [second.id]
    assert list(held(agent)) == [str(second.id)]
    assert Execution.objects.get(pk=second.id).status == Status.RUNNING


def test_a_newcomer_never_passes_a_row_in_line_even_with_a_slot_free(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=2)
    CapacityManager().refill()
    waiting = draft("waiting")
    backlog.enqueue(agent=agent, draft=waiting, limit=2)
    with pytest.raises(AtCapacity):
        manager.acquire(agent=fresh(agent), draft=draft("barges"), overflow=Reject())
    late = draft("late")
    acquired = manager.acquire(agent=fresh(agent), draft=late, overflow=in_line)
    assert [one.execution_id for one in acquired.admissions] == [waiting.id, late.id]
    assert held(agent) == {str(waiting.id): 1, str(late.id): 2}


def test_sixteen_drainers_and_one_row_claim_it_once_and_take_nobodys_slot(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=5)
    CapacityManager().refill()
    only = draft("only")
    backlog.enqueue(agent=agent, draft=only, limit=5)
    admissions = [one for answer in in_threads(lambda: manager.drain(agent.pk), 16) for one in answer]
    assert [one.execution_id for one in admissions] == [only.id]
    row = Execution.objects.get(pk=only.id)
    assert (row.status, row.slot_token) == (Status.RUNNING, admissions[0].lease.token)
    assert held(agent) == {str(only.id): admissions[0].lease.number}


def test_one_drain_fills_every_free_slot(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=4)
    CapacityManager().refill()
    drafts = [draft(str(number)) for number in range(6)]
    for one in drafts:
        backlog.enqueue(agent=agent, draft=one, limit=4)
    admissions = manager.drain(agent.pk)
    assert [one.execution_id for one in admissions] == [one.id for one in drafts[:4]]
    assert sorted(held(agent).values()) == [1, 2, 3, 4]


def test_a_busy_head_is_passed_over_and_left_alone(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=3)
    CapacityManager().refill()
    head, second = draft("head"), draft("second")
    for one in (head, second):
        backlog.enqueue(agent=agent, draft=one, limit=3)
    other = Lease(agent=agent.name, execution_id=head.id, token=new_token(), timeout_seconds=60)
    slots.acquire(lease=other, limit=3, fleet_limit=None, preview="held under a token of an earlier claim")
    assert [one.execution_id for one in manager.drain(agent.pk)] == [second.id]
    assert Execution.objects.get(pk=head.id).status == Status.QUEUED


def test_a_claim_in_place_that_is_undone_keeps_its_place(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1)
    done = manager.acquire(agent=fresh(agent), draft=draft("done"), overflow=Reject()).outcome
    assert isinstance(done, Admitted)
    line = [draft(str(number)) for number in range(3)]
    for one in line:
        backlog.enqueue(agent=agent, draft=one, limit=1)
    before = Execution.objects.get(pk=line[0].id).queued_at
    following = Lease(agent=agent.name, execution_id=line[0].id, token=new_token(), timeout_seconds=60)
    assert backlog.claim(execution_id=line[0].id, token=following.token, number=0)
    manager_admissions = manager.undo_claim(agent_id=agent.pk, done=done.lease, following=following)
    assert [one.execution_id for one in manager_admissions] == [line[0].id]
    assert Execution.objects.get(pk=line[0].id).queued_at == before
    assert held(agent) == {str(line[0].id): 1}


def test_a_row_that_can_not_be_inserted_gives_its_slot_back(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1)
    taken = draft("once")
    manager.acquire(agent=fresh(agent), draft=taken, overflow=Reject())
    slots.release(lease=manager_lease(agent, taken))
    with pytest.raises(KeyTaken):
        manager.acquire(agent=fresh(agent), draft=taken, overflow=Reject())
    assert held(agent) == {}


def manager_lease(agent: Agent, taken: Draft) -> Lease:
    """The lease that the row of `taken` carries."""
    token = Execution.objects.values_list("slot_token", flat=True).get(pk=taken.id)
    assert token is not None
    return Lease(agent=agent.name, execution_id=taken.id, token=token, timeout_seconds=60)


def test_a_paused_agent_admits_nothing_and_its_line_fills(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=2, paused=True)
    with pytest.raises(AgentPaused):
        manager.acquire(agent=fresh(agent), draft=draft(), overflow=Reject())
    acquired = manager.acquire(agent=fresh(agent), draft=draft(), overflow=in_line)
    assert isinstance(acquired.outcome, Queued)
    assert acquired.admissions == manager.drain(agent.pk) == ()


def test_a_store_out_of_reach_refuses_and_leaves_no_row(make_agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent(limit=2)
    nowhere = redis.Redis(host="127.0.0.1", port=1, socket_connect_timeout=0.2)
    for script in slots.SCRIPTS.values():
        monkeypatch.setattr(script, "_registered", nowhere.register_script(script.text))
    with pytest.raises(SlotsUnavailable):
        manager.acquire(agent=fresh(agent), draft=draft(), overflow=in_line)
    assert not Execution.objects.exists()


def test_many_acquire_at_once_and_no_more_than_the_limit_hold(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=3, depth=100)
    CapacityManager().refill()
    answers = in_threads(lambda: manager.acquire(agent=fresh(agent), draft=draft(), overflow=in_line), 24)
    admissions: list[Admission] = [one for answer in answers for one in answer.admissions]
    assert len({one.execution_id for one in admissions}) == len(admissions) == 3
    assert sorted(held(agent).values()) == [1, 2, 3]
    assert Execution.objects.filter(status=Status.QUEUED).count() == 21


def test_a_session_runs_one_at_a_time_and_holds_up_nobody_else(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=3)
    session = agent.sessions.create(owner=agent.owner)
    first = manager.acquire(agent=fresh(agent), draft=draft("1", session_id=session.pk), overflow=in_line)
    second = manager.acquire(agent=fresh(agent), draft=draft("2", session_id=session.pk), overflow=in_line)
    other = manager.acquire(agent=fresh(agent), draft=draft("other"), overflow=in_line)
    assert isinstance(first.outcome, Admitted)
    assert isinstance(second.outcome, Queued)
    assert isinstance(other.outcome, Admitted)
    backlog.start(execution_id=first.outcome.lease.execution_id, token=first.outcome.lease.token)
    outcome = backlog.Outcome(response="ok")
    lease = first.outcome.lease
    assert backlog.finish(execution_id=lease.execution_id, token=lease.token, outcome=outcome, session_id=session.pk)
    admitted = manager.release(agent_id=agent.pk, lease=lease)
    assert [one.execution_id for one in admitted] == [second.outcome.execution_id]


def test_the_database_itself_refuses_a_second_run_of_a_session(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=3)
    session = agent.sessions.create(owner=agent.owner)
    ids = [new_id(), new_id()]
    for one in ids:
        backlog.enqueue(agent=agent, draft=Draft(id=one, message="x", timeout_seconds=60, session_id=session.pk), limit=3)
    Execution.objects.update(startable=True)
    assert backlog.claim(execution_id=ids[0], token=new_token(), number=1)
    assert not backlog.claim(execution_id=ids[1], token=new_token(), number=2)
    assert connection.is_usable()
