"""Faults that a reading of the protocol found, each by the schedule that shows it: runs, their keeper, and repair."""

import time
from collections.abc import Callable, Iterator

import pytest
import redis
from django.contrib.auth.models import User

from backlog import services as backlog
from backlog.models import Execution, Status
from backlog.services import Outcome
from capacity import slots
from capacity.gate import gate_in_place
from capacity.leases import Lease
from capacity.manager import CapacityManager
from core.conf import conf
from core.ids import new_token
from fleet.models import Agent, OnFull
from fleet.principals import Principal
from runtime import dispatch, housekeeping
from runtime.events import ExecutionFinished
from runtime.runtimes.base import Result, Stop, StopReason
from runtime.services import controls, repair, runs
from runtime.services.keeper import Keeper, keeper, margin_seconds
from runtime.services.repair import comparing, dispatching, steps
from runtime.services.submit import Submitted, TaskRequest, submit_task
from runtime.shutdown import leaving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.fixture
def one_slot(make_agent: Callable[..., Agent], valkey: redis.Redis) -> Agent:
    """An agent with one slot, on an open gate."""
    CapacityManager().refill()
    return make_agent(limit=1)


def submit(agent: Agent, message: str = "hello", **request: object) -> Submitted:
    """Submit as the agent's owner."""
    asked = TaskRequest(message=message, on_full=OnFull.QUEUE, **request)  # type: ignore[arg-type]
    return submit_task(principal=Principal.of_user(agent.owner), name=agent.name, request=asked)


def row(submitted: Submitted) -> Execution:
    """The row as it is now."""
    return Execution.objects.get(pk=submitted.execution_id)


def begin(submitted: Submitted) -> runs.Begun:
    """Start the granted row; nothing watches it yet."""
    granted = row(submitted)
    assert granted.slot_token is not None
    begun = runs.begin_run(execution_id=granted.pk, token=granted.slot_token)
    assert begun is not None
    return begun


def held(agent: Agent) -> list[str]:
    """Who holds a slot."""
    return [str(holder.execution_id) for holder in slots.state(agent.name).holders]


# -- Threads that nobody would miss ------------------------------------------------------------------------------------
def test_the_keeper_outlives_whatever_goes_wrong_in_one_pass(agent: Agent, until: Callable[..., object]) -> None:
    begun = begin(submit(agent))
    stop, passes = Stop(), []

    def broken() -> None:
        passes.append(time.monotonic())
        raise RuntimeError("broken")

    keeper.watch(lease=begun.lease, stop=stop, flush=broken, renewed_at=time.monotonic())
    try:
        until(lambda: passes)
        assert backlog.request_cancel(execution_id=begun.row.pk)
        until(lambda: stop.reason == StopReason.CANCELLED)
    finally:
        keeper.unwatch(begun.lease)


def test_housekeeping_outlives_whatever_goes_wrong_in_one_pass() -> None:
    def broken() -> None:
        raise LookupError("broken")

    assert housekeeping.Housekeeper()._attempt(broken) is False


@pytest.mark.flows
def test_a_run_goes_on_while_its_row_answers_though_the_store_hangs(
    agent: Agent, valkey: redis.Redis, until: Callable[..., object]
) -> None:
    begun = begin(submit(agent))
    stop = Stop()
    valkey.client_pause(6000)
    # Its last renewal is so long ago that a second is left of the lease.
    keeper.watch(
        lease=begun.lease, stop=stop, flush=lambda: None, renewed_at=time.monotonic() - conf.lease_seconds + margin_seconds() + 1.5
    )
    try:
        with pytest.raises(AssertionError):
            until(lambda: not stop.lease_holds(), seconds=5)
        assert stop.reason is None
    finally:
        keeper.unwatch(begun.lease)
        until(lambda: answers(valkey))


def answers(valkey: redis.Redis) -> bool:
    """Whether the store answers again."""
    try:
        return bool(valkey.ping())
    except redis.RedisError:
        return False


# -- Shutdown ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def on_the_way_out() -> Iterator[None]:
    """This process has got its SIGTERM."""
    leaving.set()
    yield
    leaving.clear()


def test_a_worker_on_its_way_out_begins_nothing_and_leaves_it_to_others(agent: Agent, on_the_way_out: None) -> None:
    submitted = submit(agent)
    granted = row(submitted)
    assert granted.slot_token is not None
    assert runs.begin_run(execution_id=granted.pk, token=granted.slot_token) is None
    left = row(submitted)
    assert (left.started_at, left.slot_token, left.dispatched_at) == (None, granted.slot_token, None)


def test_a_run_that_begins_after_the_grace_is_stopped_too(agent: Agent) -> None:
    begun, stop, own = begin(submit(agent)), Stop(), Keeper()
    own.stop_all(StopReason.SHUTDOWN)
    own.watch(lease=begun.lease, stop=stop, flush=lambda: None, renewed_at=time.monotonic())
    own.unwatch(begun.lease)
    assert stop.reason == StopReason.SHUTDOWN


# -- Settings ----------------------------------------------------------------------------------------------------------
def test_a_limit_that_was_changed_is_answered_so_though_the_store_is_away(
    agent: Agent, superuser: User, store_out_of_reach: Callable[[bool], None]
) -> None:
    store_out_of_reach(True)
    changed = controls.set_limit(principal=Principal.of_user(agent.owner), name=agent.name, changes={"max_parallel_tasks": 5})
    assert changed.max_parallel_tasks == 5
    assert controls.set_ceiling(principal=Principal.of_user(superuser), value=4).max_parallel_tasks_ceiling == 4
    store_out_of_reach(False)


# -- Dispatch ----------------------------------------------------------------------------------------------------------
def test_a_long_outage_of_the_broker_does_not_count_as_dispatches(
    one_slot: Agent, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch, age_row: Callable[..., Execution]
) -> None:
    dispatch.broker.failed()
    submitted = submit(one_slot)
    for _ in range(20):
        repair.dispatch_again()
    monkeypatch.setattr(dispatch, "broker", dispatch._Broker())
    before = valkey.llen("celery:trinity")
    repair.dispatch_again()
    age_row(row(submitted), conf.redispatch_seconds + 1)
    repair.dispatch_again()
    assert valkey.llen("celery:trinity") == before + 2


def test_rows_that_were_heard_of_hold_up_no_dispatch(
    make_agent: Callable[..., Agent], valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(limit=2)
    monkeypatch.setattr(dispatch, "broker", dispatch._Broker())
    submit(agent, "heard of")
    dispatch.broker.failed()
    unheard = submit(agent, "not published")
    monkeypatch.setattr(dispatch, "broker", dispatch._Broker())
    monkeypatch.setattr(dispatching, "MOST_A_PASS", 1)
    repair.dispatch_again()
    assert row(unheard).dispatched_at is not None


# -- Slots of runs that somebody else carries --------------------------------------------------------------------------
def test_a_run_that_began_after_repair_looked_keeps_its_slot(one_slot: Agent) -> None:
    submitted = submit(one_slot)
    seen = row(submitted)
    begun = begin(submitted)
    steps.requeue(seen, begun.lease, slot="gone")
    assert held(one_slot) == [str(submitted.execution_id)]


def test_a_claim_in_place_that_another_worker_began_keeps_its_slot(one_slot: Agent) -> None:
    done, following = begin(submit(one_slot, "done")), submit(one_slot, "following")
    lease = Lease(agent=one_slot.name, execution_id=following.execution_id, token=new_token(), timeout_seconds=900)
    written, head = backlog.finish_and_claim_next(
        agent_id=one_slot.pk, execution_id=done.row.pk, token=done.lease.token, outcome=Outcome(response="ok"), next_token=lease.token
    )
    assert written
    assert head is not None
    slots.handover(done=done.lease, following=lease, limit=1, fleet_limit=None, paused=False, started=True, lease_seconds=60, preview="")
    # The database is away for a minute; when it is back, the sweep's message is faster than the thread that waits for it.
    begin(following)
    finished = ExecutionFinished(execution_id=done.row.pk, agent=one_slot.name)
    assert runs._start_granted(lease, head=head, finished=finished, renewed_at=time.monotonic()) is None
    assert held(one_slot) == [str(following.execution_id)]


# -- Sessions ----------------------------------------------------------------------------------------------------------
def two_of_a_session(agent: Agent) -> tuple[Submitted, Submitted]:
    """The agent's one slot is taken; both wait, the second for the first."""
    session = agent.sessions.create(owner=agent.owner)
    submit(agent, "runs")
    first, second = (submit(agent, text, session_id=session.pk) for text in ("first", "second"))
    assert [row(one).startable for one in (first, second)] == [True, False]
    return first, second


def test_a_crash_amid_a_cancel_leaves_no_session_that_waits_for_nobody(one_slot: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two_of_a_session(one_slot)

    def crash(*_args: object) -> None:
        raise KeyboardInterrupt

    olga = Principal.of_user(one_slot.owner)
    with monkeypatch.context() as patch:
        patch.setattr(backlog, "let_next_of_session_start", crash)
        with pytest.raises(KeyboardInterrupt):
            controls.cancel_execution(principal=olga, execution_id=first.execution_id)
    assert (row(first).status, row(second).startable) == (Status.QUEUED, False)
    assert controls.cancel_execution(principal=olga, execution_id=first.execution_id) == "cancelled"
    assert row(second).startable


@pytest.mark.parametrize("session_gone", [False, True])
def test_a_session_that_waits_for_nobody_is_found_by_repair(one_slot: Agent, session_gone: bool) -> None:
    first, second = two_of_a_session(one_slot)
    housekeeping.reconcile()
    assert not row(second).startable
    backlog.cancel_queued(execution_id=first.execution_id)
    if session_gone:
        Execution.objects.filter(pk=second.execution_id).update(session=None)
    housekeeping.reconcile()
    assert row(second).startable


def test_an_expired_head_lets_its_session_go_on(one_slot: Agent, age_row: Callable[..., Execution]) -> None:
    first, second = two_of_a_session(one_slot)
    age_row(row(first), conf.expiry_seconds + 1)
    repair.expire_waiting()
    assert (row(first).error_code, row(second).startable) == ("expired", True)


def test_a_result_after_all_this_is_still_written_once(one_slot: Agent) -> None:
    first, second = two_of_a_session(one_slot)
    running = Execution.objects.get(message="runs")
    assert running.slot_token is not None
    begun = runs.begin_run(execution_id=running.pk, token=running.slot_token)
    assert begun is not None
    following = runs.end_run(begun, Result(response="ok"), in_place=True)
    assert following is not None
    assert following.row.pk == first.execution_id
    last = runs.end_run(following, Result(response="ok"), in_place=True)
    assert last is not None
    assert last.row.pk == second.execution_id
    assert runs.end_run(last, Result(response="ok"), in_place=True) is None
    assert held(one_slot) == []


def test_a_row_claimed_in_place_that_starts_between_repairs_look_and_its_act_is_not_lost(
    one_slot: Agent, age_row: Callable[..., Execution], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, following, token = begin(submit(one_slot)), submit(one_slot, "next"), new_token()
    _, head = backlog.finish_and_claim_next(
        agent_id=one_slot.pk, execution_id=first.row.pk, token=first.lease.token, outcome=Outcome(response="ok"), next_token=token
    )
    assert head is not None
    age_row(head, conf.orphan_seconds + 1)
    lease = Lease(agent=one_slot.name, execution_id=head.pk, token=token, timeout_seconds=head.timeout_seconds)
    look = comparing.manager.holders

    def then_started() -> list[slots.FleetHolder]:
        """A worker that stood still since its claim goes on when the slots have been read."""
        found = look()
        granted = CapacityManager().handover(gate=gate_in_place(head), done=first.lease, following=lease, preview="")
        assert granted is not None
        assert backlog.start(execution_id=head.pk, token=token, number=granted.number)
        return found

    monkeypatch.setattr(comparing.manager, "holders", then_started)
    comparing.compare()
    assert (row(following).status, row(following).slot_token) == (Status.RUNNING, token)
    assert held(one_slot) == [str(head.pk)]
