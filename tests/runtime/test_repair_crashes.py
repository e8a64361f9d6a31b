"""A process that dies between two steps: what it leaves is put right, once what it left has aged."""

import pathlib
import threading
from collections.abc import Callable
from itertools import count

import pytest
import redis
from django.db import connection

from backlog import services as backlog
from backlog.models import Execution, Status
from capacity import keys, slots
from capacity.manager import CapacityManager
from core.conf import conf
from fleet.models import Agent
from runtime import housekeeping, tasks
from runtime.services import repair, runs
from runtime.services.keeper import Keeper
from runtime.services.repair import comparing
from tests.ageing import age_ending
from tests.runtime.repairing import begin, end_lease, hear_all, held, kinds, messages, row, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

MakeAgent = Callable[..., Agent]
AgeRow = Callable[..., Execution]
AgeSlot = Callable[..., None]


class Died(BaseException):
    """The process ended here: nothing after it is run, no `except Exception` hears of it."""


@pytest.fixture
def one_slot(make_agent: MakeAgent, valkey: redis.Redis) -> Agent:
    """An agent with one slot, on an open gate whose last repair was a moment ago."""
    CapacityManager().refill()
    repair.repair_lost()
    return make_agent(limit=1)


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`die_at("module.function")`: whoever calls it next dies instead."""

    def arm(path: str) -> None:
        def die(*_: object, **__: object) -> None:
            monkeypatch.undo()
            raise Died

        monkeypatch.setattr(path, die)

    return arm


def at_rest(agent: Agent) -> bool:
    """Whether nothing is held, granted or in line."""
    unsettled = Execution.objects.filter(agent=agent).exclude(status__in=("success", "failed", "cancelled"), slot_token=None)
    return not held(agent) and not unsettled.exists()


def carry_all(valkey: redis.Redis, agent: Agent) -> None:
    """Carry whatever is granted, as a worker with every message would, until nothing is left."""
    for _ in range(20):
        granted = Execution.objects.filter(agent=agent, status=Status.RUNNING, started_at=None).first()
        if granted is None:
            return
        runs.run_execution(execution_id=granted.pk, token=granted.slot_token)  # type: ignore[arg-type]


# -- Scenario 25 -------------------------------------------------------------------------------------------------------
def test_killed_between_the_slot_and_its_row(
    one_slot: Agent, valkey: redis.Redis, age_slot: AgeSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        # Even what cleans up after an error is not run by a process that is dead.
        patched.setattr(backlog, "insert_running", _dies)
        patched.setattr(CapacityManager, "_give_back", lambda *_: None)
        with pytest.raises(Died):
            submit(one_slot)
    (taken,) = held(one_slot)
    waiting = submit(one_slot)
    housekeeping.run_once()
    assert held(one_slot) == [taken]
    age_slot(one_slot.name, taken, conf.orphan_seconds + 1)
    housekeeping.run_once()
    assert held(one_slot) == [str(waiting.execution_id)]
    carry_all(valkey, one_slot)
    assert (row(waiting).status, at_rest(one_slot)) == (Status.SUCCESS, True)


def test_killed_between_the_claim_and_its_message(
    one_slot: Agent, valkey: redis.Redis, die_at: Callable[[str], None], age_row: AgeRow
) -> None:
    die_at("runtime.dispatch._publish")
    with pytest.raises(Died):
        submit(one_slot)
    granted = Execution.objects.get(agent=one_slot)
    assert (granted.status, messages(valkey)) == (Status.RUNNING, 0)
    housekeeping.run_once()
    assert messages(valkey) == 0
    age_row(granted, conf.redispatch_seconds + 1)
    housekeeping.run_once()
    assert messages(valkey) == 1
    carry_all(valkey, one_slot)
    assert (Execution.objects.get(agent=one_slot).status, at_rest(one_slot)) == (Status.SUCCESS, True)


def test_killed_with_the_message_before_the_first_renewal(one_slot: Agent, valkey: redis.Redis, age_row: AgeRow) -> None:
    granted = submit(one_slot)
    hear_all(valkey)
    age_row(row(granted), conf.redispatch_seconds + 1)
    housekeeping.run_once()
    assert (messages(valkey), kinds(granted)) == (1, ["dispatched_again"])
    carry_all(valkey, one_slot)
    assert (row(granted).status, at_rest(one_slot)) == (Status.SUCCESS, True)


def test_killed_between_the_first_renewal_and_the_row(
    one_slot: Agent, valkey: redis.Redis, die_at: Callable[[str], None], age_slot: AgeSlot
) -> None:
    granted = submit(one_slot)
    token = row(granted).slot_token
    die_at("backlog.services.start")
    with pytest.raises(Died):
        tasks.run_execution(str(granted.execution_id), str(token))
    assert row(granted).started_at is None
    end_lease(valkey, granted)
    housekeeping.run_once()
    again = row(granted)
    assert (again.status, again.slot_token != token, again.started_at) == (Status.RUNNING, True, None)
    assert kinds(granted) == ["put_back_in_line"]
    carry_all(valkey, one_slot)
    assert (row(granted).status, at_rest(one_slot)) == (Status.SUCCESS, True)


def test_killed_between_the_result_and_the_slot(one_slot: Agent, die_at: Callable[[str], None], age_row: AgeRow) -> None:
    first, second = submit(one_slot, "first"), submit(one_slot, "second")
    begun = begin(first)
    die_at("capacity.slots.release")
    with pytest.raises(Died):
        runs.end_run(begun, runs.Result(response="done"), in_place=False)
    housekeeping.run_once()
    assert (row(first).status, held(one_slot)) == (Status.SUCCESS, [str(first.execution_id)])
    age_row(row(first), comparing.GIVING_SECONDS + 1)
    housekeeping.run_once()
    assert (kinds(first), held(one_slot)) == (["slot_without_row"], [str(second.execution_id)])


def test_killed_between_the_claim_in_place_and_the_handover(
    one_slot: Agent, valkey: redis.Redis, die_at: Callable[[str], None], age_row: AgeRow
) -> None:
    first, second = submit(one_slot, "first"), submit(one_slot, "second")
    begun = begin(first)
    die_at("capacity.slots.handover")
    with pytest.raises(Died):
        runs.end_run(begun, runs.Result(response="done"), in_place=True)
    claimed = row(second)
    assert (claimed.status, held(one_slot)) == (Status.RUNNING, [str(first.execution_id)])
    housekeeping.run_once()
    for left in (row(first), claimed):
        age_row(left, conf.orphan_seconds + 1)
    housekeeping.run_once()
    assert kinds(second) == ["put_back_in_line"]
    carry_all(valkey, one_slot)
    assert (row(first).status, row(second).status, at_rest(one_slot)) == (Status.SUCCESS, Status.SUCCESS, True)


def test_killed_between_the_fence_and_the_freeing(one_slot: Agent, valkey: redis.Redis, die_at: Callable[[str], None]) -> None:
    lost = submit(one_slot)
    token = begin(lost).lease.token
    end_lease(valkey, lost)
    repair.repair_lost()
    age_ending(valkey, token, 60)
    die_at("capacity.slots.release")
    with pytest.raises(Died):
        repair.repair_lost()
    assert (row(lost).slot_token, held(one_slot)) == (None, [str(lost.execution_id)])
    housekeeping.run_once()
    assert held(one_slot) == []


# -- Scenario 24 -------------------------------------------------------------------------------------------------------
def test_the_same_message_twice_at_once_and_after_the_end_runs_once(make_agent: MakeAgent, tmp_path: object, valkey: redis.Redis) -> None:
    ledger = f"{tmp_path}/ledger"
    agent = make_agent(limit=2, runtime={"kind": "command", "argv": ["sh", "-c", f"echo begun >> {ledger}; sleep 0.2; echo done"]})
    granted = submit(agent)
    message = (str(granted.execution_id), str(row(granted).slot_token))

    def deliver() -> None:
        try:
            tasks.run_execution(*message)
        finally:
            connection.close()

    twice = [threading.Thread(target=deliver) for _ in range(2)]
    for thread in twice:
        thread.start()
    for thread in twice:
        thread.join()
    tasks.run_execution(*message)
    with pathlib.Path(ledger).open() as lines:
        assert lines.read() == "begun\n"
    assert (row(granted).status, row(granted).response, at_rest(agent)) == (Status.SUCCESS, "done", True)


# -- A worker that comes back ------------------------------------------------------------------------------------------
def test_a_worker_back_from_the_dead_changes_nothing_of_the_slots_new_holder(one_slot: Agent, valkey: redis.Redis) -> None:
    first, second = submit(one_slot, "first"), submit(one_slot, "second")
    begun = begin(first)
    end_lease(valkey, first)
    repair.repair_lost()
    age_ending(valkey, begun.lease.token, 60)
    repair.repair_lost()
    new = begin(second)
    holder = valkey.hget(keys.holders(one_slot.name), str(second.execution_id))
    assert slots.renew(leases=[begun.lease], lease_seconds=60) == [slots.RenewOutcome.REFUSED]
    for in_place in (True, False):
        assert runs.end_run(begun, runs.Result(response="late"), in_place=in_place) is None
    assert (row(first).status, row(first).error_code, row(first).response) == (Status.FAILED, "worker_lost", None)
    assert valkey.hget(keys.holders(one_slot.name), str(second.execution_id)) == holder
    assert (row(second).slot_token, row(second).status) == (new.lease.token, Status.RUNNING)


def test_a_slot_that_somebody_deleted_stops_its_run_which_keeps_its_token_until_then(
    make_agent: MakeAgent, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch, until: Callable[..., object]
) -> None:
    CapacityManager().refill()
    agent = make_agent(limit=1, runtime={"kind": "command", "argv": ["sleep", "600"]})
    granted = submit(agent)
    own = Keeper()
    monkeypatch.setattr(runs, "keeper", own)
    monkeypatch.setattr("django.conf.settings.TRINITY_LEASE_RENEW_SECONDS", 1, raising=False)

    def work() -> None:
        try:
            runs.run_execution(execution_id=granted.execution_id, token=row(granted).slot_token)  # type: ignore[arg-type]
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: row(granted).started_at is not None and own.runs())
    valkey.delete(keys.holders(agent.name), keys.slots(agent.name), keys.leases())
    thread.join(15)
    assert not thread.is_alive()
    assert (row(granted).status, row(granted).error_code, at_rest(agent)) == (Status.FAILED, "lease_lost", True)


# -- Scenario 10, in one process ---------------------------------------------------------------------------------------
def test_an_emptied_store_gives_three_of_three_their_slots_back_and_lets_no_fourth_in(
    make_agent: MakeAgent, valkey: redis.Redis, until: Callable[..., object]
) -> None:
    CapacityManager().refill()
    repair.repair_lost()
    agent = make_agent(limit=3)
    running = [begin(submit(agent, str(number))) for number in range(3)]
    numbers = {str(one.row.pk): one.lease.number for one in running}
    valkey.flushdb()
    fourth = submit(agent, "fourth")
    assert fourth.queue_position == 1
    until(lambda: len(held(agent)) == 3, 5)
    assert {str(holder.execution_id): holder.number for holder in slots.state(agent.name).holders} == numbers
    housekeeping.run_once()
    assert row(fourth).status == Status.QUEUED
    assert [slots.renew(leases=[one.lease], lease_seconds=60) for one in running] == [[slots.RenewOutcome.OK]] * 3
    runs.end_run(running[0], runs.Result(response="done"), in_place=False)
    assert (row(fourth).status, len(held(agent))) == (Status.RUNNING, 3)


# -- Rebuild -----------------------------------------------------------------------------------------------------------
def test_a_rebuild_outlives_a_database_that_takes_longer_than_its_turn(
    one_slot: Agent, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "REBUILD_EXPIRY_MS", 400)
    monkeypatch.setattr("capacity.keeping.EVERY_SECONDS", 0.1)
    begin(submit(one_slot))
    valkey.flushdb()
    asked, real = count(), backlog.undo_all_claims

    def slow(**when: object) -> int:
        next(asked)
        threading.Event().wait(1.5)
        return real(**when)  # type: ignore[arg-type]

    monkeypatch.setattr(backlog, "undo_all_claims", slow)
    assert CapacityManager().refill()
    assert (next(asked), len(held(one_slot))) == (1, 1)


def test_a_rebuilder_that_died_is_succeeded_when_its_turn_has_passed(
    one_slot: Agent, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch, die_at: Callable[[str], None], until: Callable[..., object]
) -> None:
    monkeypatch.setattr(slots, "REBUILD_EXPIRY_MS", 400)
    begin(submit(one_slot))
    valkey.flushdb()
    with monkeypatch.context() as patched:
        patched.setattr(backlog, "undo_all_claims", _dies)
        with pytest.raises(Died):
            CapacityManager().refill()
    assert not CapacityManager().refill()
    until(lambda: CapacityManager().refill())
    assert len(held(one_slot)) == 1


def _dies(**_: object) -> int:
    raise Died
