"""Faults that a reading of the protocol found, each by the schedule that shows it: the facade's."""

import itertools
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis

from backlog import services as backlog
from backlog.drafts import Draft, Queued
from backlog.models import Execution, Status
from backlog.services import Outcome
from capacity import keys, slots
from capacity import manager as facade
from capacity.errors import SlotsUnavailable
from capacity.gate import gated, look
from capacity.leases import Lease
from capacity.manager import CapacityManager
from core.ids import new_id, new_token
from fleet.models import Agent, FleetSettings, Session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
manager = CapacityManager()
MANY_LOOKS = 20


def draft(message: str = "hello", **fields: Any) -> Draft:
    """A request of a minute."""
    return Draft(id=new_id(), message=message, timeout_seconds=60, **fields)


def in_line(*, agent: Agent, draft: Draft, full: Exception) -> Queued:
    """Overflow into the line."""
    return backlog.enqueue(agent=agent, draft=draft, limit=agent.max_parallel_tasks)


def fresh(agent: Agent) -> Agent:
    """The agent as a request reads it."""
    return gated(Agent.objects.filter(pk=agent.pk)).get()


def held(agent: Agent) -> set[str]:
    """Who holds a slot."""
    return {str(holder.execution_id) for holder in slots.state(agent.name).holders}


def take(agent: Agent, asked: Draft) -> Lease:
    """A newcomer that looked before anybody else was there: slot, then row."""
    lease = Lease(agent=agent.name, execution_id=asked.id, token=new_token(), timeout_seconds=60)
    taken = slots.acquire(lease=lease, limit=agent.max_parallel_tasks, fleet_limit=None, preview=asked.message)
    assert backlog.insert_running(agent=agent, draft=asked, token=lease.token, number=taken.number) is not None
    return lease


def session_of(agent: Agent) -> Session:
    """A conversation of the agent's owner."""
    return agent.sessions.create(owner=agent.owner)


@pytest.fixture
def few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain that would go on for ever fails instead."""
    looks = itertools.count(1)

    def counted(agent_id: int) -> Any:
        assert next(looks) < MANY_LOOKS, "this drain has no end"
        return look(agent_id)

    monkeypatch.setattr(facade, "look", counted)


@pytest.mark.usefixtures("few_looks")
def test_a_row_whose_session_runs_already_holds_up_neither_the_drain_nor_the_line(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=3)
    manager.refill()
    session = session_of(agent)
    first = take(agent, draft("first", session_id=session.pk))
    second, other = draft("second", session_id=session.pk), draft("other")
    backlog.enqueue(agent=agent, draft=second, limit=3)
    Execution.objects.filter(pk=second.id).update(startable=True)
    backlog.enqueue(agent=agent, draft=other, limit=3)
    assert [one.execution_id for one in manager.drain(agent.pk)] == [other.id]
    assert held(agent) == {str(first.execution_id), str(other.id)}
    # It waits for its session now, not for a slot: nobody else is refused for its sake.
    assert not Execution.objects.get(pk=second.id).startable
    backlog.start(execution_id=first.execution_id, token=first.token)
    backlog.finish(execution_id=first.execution_id, token=first.token, outcome=Outcome(response="ok"), session_id=session.pk)
    assert [one.execution_id for one in manager.release(agent_id=agent.pk, lease=first)] == [second.id]


def test_a_newcomer_whose_session_got_a_row_in_line_meanwhile_has_no_row_and_stands_behind_it(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=3)
    session = session_of(agent)
    first, second = draft("first", session_id=session.pk), draft("second", session_id=session.pk)
    backlog.enqueue(agent=agent, draft=first, limit=3)
    assert backlog.insert_running(agent=agent, draft=second, token=new_token(), number=1) is None
    backlog.enqueue(agent=agent, draft=second, limit=3)
    assert Execution.objects.get(pk=first.id).startable
    assert not Execution.objects.get(pk=second.id).startable


@pytest.mark.usefixtures("few_looks")
def test_a_row_that_another_claimed_and_put_back_is_looked_at_again(
    make_agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(limit=1)
    manager.refill()
    only = draft("only")
    backlog.enqueue(agent=agent, draft=only, limit=1)
    others = iter([new_token()])

    def claim(*, execution_id: uuid.UUID, token: uuid.UUID, number: int) -> bool:
        """Once somebody else is first, and puts it back."""
        if (other := next(others, None)) is None:
            return real(execution_id=execution_id, token=token, number=number)
        assert real(execution_id=execution_id, token=other, number=0)
        lost = not real(execution_id=execution_id, token=token, number=number)
        assert backlog.undo_claim(execution_id=execution_id, token=other)
        return not lost

    real = backlog.claim
    monkeypatch.setattr(backlog, "claim", claim)
    assert [one.execution_id for one in manager.drain(agent.pk)] == [only.id]
    assert held(agent) == {str(only.id)}


def test_a_queued_request_is_accepted_though_the_store_goes_away_after_its_commit(
    make_agent: Callable[..., Agent], store_out_of_reach: Callable[[bool], None]
) -> None:
    agent = make_agent(limit=1)
    take_first = manager.acquire(agent=fresh(agent), draft=draft("first"), overflow=in_line)
    assert take_first.admissions

    def then_away(*, agent: Agent, draft: Draft, full: Exception) -> Queued:
        queued = in_line(agent=agent, draft=draft, full=full)
        store_out_of_reach(True)
        return queued

    second = draft("second")
    acquired = manager.acquire(agent=fresh(agent), draft=second, overflow=then_away)
    store_out_of_reach(False)
    assert (acquired.outcome, acquired.admissions) == (Queued(execution_id=second.id, position=1), ())


def test_a_request_behind_a_line_leaves_no_row_while_the_store_is_away(
    make_agent: Callable[..., Agent], store_out_of_reach: Callable[[bool], None]
) -> None:
    agent = make_agent(limit=1)
    backlog.enqueue(agent=agent, draft=draft("waits"), limit=1)
    store_out_of_reach(True)
    with pytest.raises(SlotsUnavailable):
        manager.acquire(agent=fresh(agent), draft=draft("late"), overflow=in_line)
    store_out_of_reach(False)
    assert Execution.objects.count() == 1


def test_what_a_drain_admitted_is_returned_though_the_store_goes_away_midway(
    make_agent: Callable[..., Agent], store_out_of_reach: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(limit=2)
    manager.refill()
    first, second = draft("first"), draft("second")
    for one in (first, second):
        backlog.enqueue(agent=agent, draft=one, limit=2)
    looks = itertools.count(1)

    def away_at_the_second(agent_id: int) -> Any:
        if next(looks) == 2:
            store_out_of_reach(True)
        return look(agent_id)

    monkeypatch.setattr(facade, "look", away_at_the_second)
    admitted = manager.drain(agent.pk)
    store_out_of_reach(False)
    assert [one.execution_id for one in admitted] == [first.id]
    assert Execution.objects.get(pk=second.id).status == Status.QUEUED


def test_what_all_drains_admitted_is_returned_though_one_of_them_fails(
    make_agent: Callable[..., Agent], store_out_of_reach: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [make_agent(limit=1), make_agent(limit=1)]
    manager.refill()
    waiting = [draft(agent.name) for agent in agents]
    for agent, one in zip(agents, waiting, strict=True):
        backlog.enqueue(agent=agent, draft=one, limit=1)

    def away_at_the_last(agent_id: int) -> Any:
        if agent_id == agents[-1].pk:
            store_out_of_reach(True)
        return look(agent_id)

    monkeypatch.setattr(facade, "look", away_at_the_last)
    admitted = manager.drain_all()
    store_out_of_reach(False)
    assert [one.execution_id for one in admitted] == [waiting[0].id]


def test_a_claim_that_another_worker_started_meanwhile_keeps_its_slot(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(limit=1)
    manager.refill()
    done = take(agent, draft("done"))
    following = draft("following")
    backlog.enqueue(agent=agent, draft=following, limit=1)
    backlog.start(execution_id=done.execution_id, token=done.token)
    lease = Lease(agent=agent.name, execution_id=following.id, token=new_token(), timeout_seconds=60)
    written, head = backlog.finish_and_claim_next(
        agent_id=agent.pk, execution_id=done.execution_id, token=done.token, outcome=Outcome(response="ok"), next_token=lease.token
    )
    assert written
    assert head is not None
    # The handover was carried out and its answer lost; then the claim's own message reached a worker.
    slots.handover(done=done, following=lease, limit=1, fleet_limit=None, paused=False, started=True, lease_seconds=60, preview="")
    assert backlog.start(execution_id=following.id, token=lease.token)
    assert manager.undo_claim(agent_id=agent.pk, done=done, following=lease) == ()
    assert held(agent) == {str(following.id)}


def test_under_a_full_cap_places_go_round_the_agents(
    make_agent: Callable[..., Agent],
) -> None:
    busy, patient = make_agent(limit=2, name="a-busy"), make_agent(limit=2, name="z-patient")
    manager.refill()
    FleetSettings.objects.update(max_concurrent_tasks=1)
    for _ in range(3):
        backlog.enqueue(agent=busy, draft=draft("busy"), limit=2)
    backlog.enqueue(agent=patient, draft=draft("patient"), limit=2)
    served: list[str] = []
    admitted = manager.drain_all()
    while admitted:
        assert len(admitted) == 1
        lease = admitted[0].lease
        served.append(lease.agent)
        backlog.start(execution_id=lease.execution_id, token=lease.token)
        assert backlog.finish(execution_id=lease.execution_id, token=lease.token, outcome=Outcome(response="ok"))
        agent = Agent.objects.get(name=lease.agent)
        admitted = manager.release(agent_id=agent.pk, lease=lease)
    assert served == ["a-busy", "z-patient", "a-busy", "a-busy"]


def test_a_rebuilder_that_stood_still_puts_nothing_back_that_was_granted_since(
    make_agent: Callable[..., Agent], valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(limit=1)
    waiting = draft("waiting")
    backlog.enqueue(agent=agent, draft=waiting, limit=1)
    begin = slots.rebuild_begin

    def overtaken(*, nonce: uuid.UUID) -> bool:
        assert begin(nonce=nonce)
        monkeypatch.undo()
        valkey.delete(keys.rebuild())  # it stood still until its turn had expired
        assert manager.refill()
        assert [one.execution_id for one in manager.drain(agent.pk)] == [waiting.id]
        return True

    monkeypatch.setattr(slots, "rebuild_begin", overtaken)
    assert not manager.refill()
    assert Execution.objects.get(pk=waiting.id).status == Status.RUNNING
    assert held(agent) == {str(waiting.id)}
