"""Stores that are gone, or say nothing: no run is ended for it, and no slot taken away."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from backlog.models import Execution, Status
from capacity import keys, slots
from fleet.models import Agent, OnFull
from fleet.principals import Principal
from runtime import housekeeping
from runtime.runtimes.base import Stop
from runtime.services import repair, runs
from runtime.services.keeper import keeper
from runtime.services.submit import TaskRequest, submit_task

pytestmark = [pytest.mark.flows, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
Until = Callable[..., object]


@pytest.fixture
def short_leases(settings: Any) -> None:
    """Leases of six seconds, renewed each second."""
    settings.TRINITY_LEASE_SECONDS = 6
    settings.TRINITY_LEASE_RENEW_SECONDS = 1


def begin(agent: Agent) -> runs.Begun:
    """A task that was submitted and has started; nothing watches it yet."""
    asked = TaskRequest(message="hello", on_full=OnFull.QUEUE)
    submitted = submit_task(principal=Principal.of_user(agent.owner), name=agent.name, request=asked)
    granted = Execution.objects.get(pk=submitted.execution_id)
    assert granted.slot_token is not None
    begun = runs.begin_run(execution_id=granted.pk, token=granted.slot_token)
    assert begun is not None
    return begun


def ends_within(stop: Stop, seconds: float) -> bool:
    """Whether the run was told to stop, or its lease ran out, at any moment of the next `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if stop.wait(0.02) or not stop.lease_holds():
            return True
    return False


@pytest.mark.usefixtures("short_leases")
def test_a_run_outlives_a_store_that_hangs_for_longer_than_a_lease(agent: Agent, valkey: redis.Redis, until: Until) -> None:
    begun, stop = begin(agent), Stop()
    keeper.watch(lease=begun.lease, stop=stop, flush=lambda: None, renewed_at=begun.renewed_at)
    valkey.client_pause(9000)
    try:
        assert not ends_within(stop, 9), stop.reason
    finally:
        until(lambda: answers(valkey))
        keeper.unwatch(begun.lease)
    assert stop.reason is None


@pytest.mark.usefixtures("short_leases")
def test_a_run_outlives_a_database_that_hangs_for_longer_than_a_lease(agent: Agent) -> None:
    begun, stop, hanging, over = begin(agent), Stop(), threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        over.wait(30)

    keeper.watch(lease=begun.lease, stop=stop, flush=hang, renewed_at=begun.renewed_at)
    try:
        assert hanging.wait(10)
        assert not ends_within(stop, 9)
    finally:
        over.set()
        keeper.unwatch(begun.lease)
    assert stop.reason is None
    assert [holder.phase for holder in slots.state(agent.name).holders] == ["started"]


def test_a_deadline_never_moves_back() -> None:
    stop, told = Stop(), list[float]()
    stop.extend(100.0)
    stop.on_extend(told.append)
    stop.extend(90.0)
    stop.extend(110.0)
    assert (stop.deadline, told) == (110.0, [100.0, 100.0, 110.0])


def test_an_idle_workers_housekeeping_takes_no_slot_when_the_store_is_back(
    agent: Agent, valkey: redis.Redis, store_out_of_reach: Callable[[bool], None]
) -> None:
    begun, idle = begin(agent), housekeeping.Housekeeper()
    assert idle._attempt(housekeeping.reconcile)
    store_out_of_reach(True)
    assert not idle._attempt(housekeeping.sweep)
    store_out_of_reach(False)
    # Nobody could renew meanwhile.
    valkey.zadd(keys.leases(), {f"{agent.name}:{begun.row.pk}": valkey.time()[0] - 1})
    assert idle._attempt(housekeeping.sweep)
    assert idle._attempt(housekeeping.reconcile)
    begun.row.refresh_from_db()
    assert begun.row.status == Status.RUNNING
    assert [holder.phase for holder in slots.state(agent.name).holders] == ["started"]
    # The fresh lease is one: whoever does not renew it is lost all the same.
    valkey.zadd(keys.leases(), {f"{agent.name}:{begun.row.pk}": valkey.time()[0] - 1})
    repair.repair_lost()
    begun.row.refresh_from_db()
    assert (begun.row.status, begun.row.error_code) == (Status.FAILED, "worker_lost")


@pytest.mark.usefixtures("short_leases")
def test_a_pass_that_a_frozen_store_carries_out_late_takes_no_slot(agent: Agent, valkey: redis.Redis) -> None:
    begun = begin(agent)
    assert slots.reclaim(lease_seconds=6).lost == []
    # As it is after seven seconds in which the store did nothing: the pass below was sent before, by one who met no error.
    now = valkey.time()[0]
    valkey.zadd(keys.leases(), {f"{agent.name}:{begun.row.pk}": now - 1})
    valkey.set(keys.reclaimed(), now - 7, ex=60)
    assert slots.reclaim(lease_seconds=6).lost == []
    assert [holder.phase for holder in slots.state(agent.name).holders] == ["started"]


def answers(valkey: redis.Redis) -> bool:
    """Whether the store answers again."""
    try:
        return bool(valkey.ping())
    except redis.RedisError:
        return False
