"""What a crash leaves behind, and what one pass of repair makes of it."""

from collections.abc import Callable

import pytest
import redis

from backlog import services as backlog
from backlog.models import Execution, Status
from capacity import keys, slots
from capacity.leases import Lease
from capacity.manager import CapacityManager
from core.conf import conf
from core.ids import new_id, new_token
from fleet.models import Agent
from runtime import dispatch, housekeeping
from runtime.runtimes.base import Result
from runtime.services import repair, runs
from tests.ageing import age_ending
from tests.runtime.repairing import begin, end_lease, hear_all, held, messages, row, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.fixture
def one_slot(make_agent: Callable[..., Agent], valkey: redis.Redis) -> Agent:
    """An agent with one slot, on an open gate whose last repair was a moment ago."""
    CapacityManager().refill()
    repair.repair_lost()
    return make_agent(limit=1)


def test_a_lost_run_fails_first_and_frees_its_slot_when_its_command_is_surely_dead(one_slot: Agent, valkey: redis.Redis) -> None:
    first, second = submit(one_slot, "first"), submit(one_slot, "second")
    begun = begin(first)
    end_lease(valkey, first)
    repair.repair_lost()
    lost = row(first)
    assert (lost.status, lost.error_code, lost.slot_token) == (Status.FAILED, "worker_lost", begun.lease.token)
    assert held(one_slot) == [str(first.execution_id)]
    age_ending(valkey, begun.lease.token, 5)
    repair.repair_lost()
    assert row(first).slot_token == begun.lease.token
    age_ending(valkey, begun.lease.token, 5)
    repair.repair_lost()
    assert row(first).slot_token is None
    assert held(one_slot) == [str(second.execution_id)]
    assert row(second).status == Status.RUNNING
    assert runs.end_run(begun, Result(response="late"), in_place=True) is None
    assert (row(first).status, held(one_slot)) == (Status.FAILED, [str(second.execution_id)])


def test_a_lost_run_whose_cancel_was_asked_for_is_cancelled(one_slot: Agent, valkey: redis.Redis) -> None:
    first = submit(one_slot)
    begin(first)
    assert backlog.request_cancel(execution_id=first.execution_id)
    end_lease(valkey, first)
    repair.repair_lost()
    assert (row(first).status, row(first).error_code) == (Status.CANCELLED, "cancelled")


def test_a_renewed_lease_is_not_taken(one_slot: Agent, valkey: redis.Redis) -> None:
    first = submit(one_slot)
    begun = begin(first)
    assert slots.renew(leases=[begun.lease], lease_seconds=conf.lease_seconds) == [slots.RenewOutcome.OK]
    housekeeping.run_once()
    assert (row(first).status, held(one_slot)) == (Status.RUNNING, [str(first.execution_id)])


def test_a_slot_without_a_row_is_freed_after_a_while_and_filled(one_slot: Agent, valkey: redis.Redis) -> None:
    orphan = Lease(agent=one_slot.name, execution_id=new_id(), token=new_token(), timeout_seconds=900)
    slots.acquire(lease=orphan, limit=1, fleet_limit=None, preview="crashed before its insert")
    waiting = submit(one_slot)
    assert waiting.queue_position == 1
    repair.compare()
    assert held(one_slot) == [str(orphan.execution_id)]
    valkey.zincrby(keys.slots(one_slot.name), -conf.orphan_seconds - 1, str(orphan.execution_id))
    repair.compare()
    assert held(one_slot) == [str(waiting.execution_id)]


def test_a_claimed_row_without_a_slot_goes_back_to_its_place(one_slot: Agent, age_row: Callable[..., Execution]) -> None:
    first, second = submit(one_slot, "first"), submit(one_slot, "second")
    granted = row(first)
    slots.release(lease=runs._lease_of(granted))
    repair.compare()
    assert row(first).slot_token == granted.slot_token
    age_row(granted, conf.orphan_seconds + 1)
    repair.compare()
    again = row(first)
    assert again.status == Status.RUNNING
    assert again.slot_token not in (None, granted.slot_token)
    assert row(second).status == Status.QUEUED


def test_a_started_row_without_a_slot_fails_and_keeps_its_token_for_a_lease(
    one_slot: Agent, valkey: redis.Redis, age_row: Callable[..., Execution]
) -> None:
    first, second = submit(one_slot, "first"), submit(one_slot, "second")
    begun = begin(first)
    slots.release(lease=begun.lease)
    age_row(row(first), conf.orphan_seconds + 1)
    repair.compare()
    assert (row(first).status, row(first).error_code) == (Status.FAILED, "worker_lost")
    housekeeping.sweep()
    age_ending(valkey, begun.lease.token, conf.lease_seconds - 5)
    housekeeping.sweep()
    assert row(first).slot_token == begun.lease.token
    age_ending(valkey, begun.lease.token, 10)
    housekeeping.sweep()
    assert row(second).status == Status.RUNNING


def test_a_granted_row_is_dispatched_again_later_and_later(one_slot: Agent, valkey: redis.Redis, age_row: Callable[..., Execution]) -> None:
    first = submit(one_slot)
    hear_all(valkey)
    repair.dispatch_again()
    assert messages(valkey) == 0
    for number, pause in enumerate((1, 2, 4, 8), start=2):
        age_row(row(first), conf.redispatch_seconds * pause - 5)
        repair.dispatch_again()
        assert messages(valkey) == 0
        age_row(row(first), 10)
        repair.dispatch_again()
        assert (messages(valkey), row(first).dispatches) == (1, number)
        hear_all(valkey)


def test_while_messages_wait_for_a_free_thread_only_one_is_sent_again_a_pass(
    make_agent: Callable[..., Agent], valkey: redis.Redis, age_row: Callable[..., Execution]
) -> None:
    agent = make_agent(limit=5)
    granted = [submit(agent, f"task {number}") for number in range(5)]
    for one in granted:
        age_row(row(one), conf.redispatch_seconds + 1)
    repair.dispatch_again()
    assert messages(valkey) == 6
    hear_all(valkey)
    repair.dispatch_again()
    assert messages(valkey) == 4
    assert [row(one).dispatches for one in granted] == [2] * 5


def test_nothing_is_sent_again_while_the_broker_is_away(one_slot: Agent, valkey: redis.Redis, age_row: Callable[..., Execution]) -> None:
    first = submit(one_slot)
    age_row(row(first), conf.redispatch_seconds + 1)
    hear_all(valkey)
    dispatch.broker.failed()
    repair.dispatch_again()
    dispatch.broker.recovered()
    assert (messages(valkey), row(first).dispatches) == (0, 1)


def test_a_row_whose_publish_failed_is_dispatched_by_the_next_sweep(one_slot: Agent, valkey: redis.Redis) -> None:
    before = valkey.llen("celery:trinity")
    dispatch.broker.failed()
    first = submit(one_slot)
    assert (row(first).status, row(first).dispatched_at, valkey.llen("celery:trinity")) == (Status.RUNNING, None, before)
    dispatch.broker.recovered()
    housekeeping.sweep()
    assert row(first).dispatched_at is not None
    assert valkey.llen("celery:trinity") == before + 1


def test_what_waited_too_long_fails_as_expired(one_slot: Agent, age_row: Callable[..., Execution]) -> None:
    submit(one_slot, "runs")
    second, third = submit(one_slot, "waits"), submit(one_slot, "waits too")
    age_row(row(second), conf.expiry_seconds + 1)
    housekeeping.sweep()
    assert (row(second).status, row(second).error_code) == (Status.FAILED, "expired")
    assert row(third).status == Status.QUEUED
