"""What was repaired is told: in the execution's log, as a count, and never at the cost of the repair."""

from collections.abc import Callable

import pytest
import redis
from django.db import DatabaseError, OperationalError

from backlog.models import Execution, ExecutionEvent, Status
from capacity import keys, repairs, slots
from capacity.leases import Lease
from capacity.manager import CapacityManager
from core.conf import conf
from core.ids import new_id, new_token
from fleet.models import Agent
from runtime import housekeeping
from runtime.services import repair
from runtime.services.event_log import EventLog
from runtime.services.repair import journal
from tests.ageing import age_ending
from tests.runtime.repairing import begin, end_lease, hear_all, held, kinds, row, submit, told

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.fixture
def one_slot(make_agent: Callable[..., Agent], valkey: redis.Redis) -> Agent:
    """An agent with one slot, on an open gate whose last repair was a moment ago."""
    CapacityManager().refill()
    repair.repair_lost()
    valkey.delete(keys.repairs())
    return make_agent(limit=1)


def test_a_lost_run_tells_how_it_was_found_and_how_its_slot_came_back(one_slot: Agent, valkey: redis.Redis) -> None:
    first = submit(one_slot)
    token = begin(first).lease.token
    end_lease(valkey, first)
    repair.repair_lost()
    age_ending(valkey, token, 60)
    repair.repair_lost()
    assert told(first) == [("worker_lost", {"slot": "lost", "slot_number": 1}), ("slot_given_back", {"by": "lease", "slot_number": 1})]
    assert repairs.counts() == {"slot_given_back": 1, "worker_lost": 1}


def test_every_other_repair_of_a_row_is_told_too(one_slot: Agent, valkey: redis.Redis, age_row: Callable[..., Execution]) -> None:
    first = submit(one_slot)
    hear_all(valkey)
    age_row(row(first), conf.redispatch_seconds + 1)
    repair.dispatch_again()
    lease = Lease(agent=one_slot.name, execution_id=first.execution_id, token=row(first).slot_token, timeout_seconds=1)  # type: ignore[arg-type]
    slots.release(lease=lease)
    repair.compare()
    assert told(first) == [("dispatched_again", {"dispatches": 1}), ("put_back_in_line", {"slot": "gone", "slot_number": 1})]
    assert row(first).status == Status.RUNNING, "its slot was free, so it was drained at once"
    assert repairs.counts() == {"dispatched_again": 1, "put_back_in_line": 1}


def test_a_slot_that_no_row_knows_is_counted_though_there_is_no_log_for_it(one_slot: Agent, age_slot: Callable[..., None]) -> None:
    orphan = Lease(agent=one_slot.name, execution_id=new_id(), token=new_token(), timeout_seconds=900)
    slots.acquire(lease=orphan, limit=1, fleet_limit=None, preview="")
    age_slot(one_slot.name, orphan.execution_id, conf.orphan_seconds + 1)
    repair.compare()
    assert held(one_slot) == []
    assert repairs.counts() == {"slot_without_row": 1}
    assert not ExecutionEvent.objects.exists()


def test_a_repair_is_made_though_neither_its_event_nor_its_count_can_be_stored(
    one_slot: Agent, valkey: redis.Redis, age_row: Callable[..., Execution], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("the table is locked")

    monkeypatch.setattr(journal, "_store", away)
    valkey.set(keys.repairs(), "not a hash: every count is an error")
    first = submit(one_slot)
    slots.release(lease=Lease(agent=one_slot.name, execution_id=first.execution_id, token=row(first).slot_token, timeout_seconds=1))  # type: ignore[arg-type]
    lost = row(first).slot_token
    age_row(row(first), conf.orphan_seconds + 1)
    repair.compare()
    valkey.delete(keys.repairs())
    assert (row(first).status, row(first).slot_token != lost) == (Status.RUNNING, True)


def test_an_execution_keeps_a_bounded_log_of_its_repairs(one_slot: Agent) -> None:
    first = submit(one_slot)
    for _ in range(journal.MOST_EVENTS + 5):
        journal.note_row(journal.Kind.DISPATCHED_AGAIN, execution_id=first.execution_id, agent=one_slot.name)
    assert len(kinds(first)) == journal.MOST_EVENTS
    assert repairs.counts() == {"dispatched_again": journal.MOST_EVENTS + 5}


def test_a_repair_that_breaks_keeps_no_other_from_being_made(
    make_agent: Callable[..., Agent], valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    CapacityManager().refill()
    repair.repair_lost()
    agent = make_agent(limit=3)
    lost = [submit(agent, str(number)) for number in range(3)]
    for one in lost:
        begin(one)
        end_lease(valkey, one)
    real = journal.note

    def breaks_once(kind: journal.Kind, lease: Lease, **seen: object) -> None:
        if lease.execution_id == lost[0].execution_id:
            raise LookupError("a bug")
        real(kind, lease, **seen)

    monkeypatch.setattr("runtime.services.repair.steps.note", breaks_once)
    repair.repair_lost()
    assert [row(one).status for one in lost] == [Status.FAILED] * 3


# -- The log that a run and repair share -------------------------------------------------------------------------------
def log_of(execution: Execution) -> list[tuple[int, str]]:
    """Numbers and types of its log."""
    return list(execution.events.order_by("seq").values_list("seq", "type"))


def note_dispatch(execution: Execution) -> None:
    """One repair told in its log."""
    journal.note_row(journal.Kind.DISPATCHED_AGAIN, execution_id=execution.pk, agent=execution.agent_name)


def test_a_run_writes_behind_what_repair_wrote_before_it_began(one_slot: Agent) -> None:
    execution = row(submit(one_slot))
    note_dispatch(execution)
    note_dispatch(execution)
    log = EventLog(execution.pk)
    log.emit("text", {"text": "one"})
    log.emit("text", {"text": "two"})
    log.flush()
    log.emit("text", {"text": "three"})
    log.flush()
    assert log_of(execution) == [(1, "repair"), (2, "repair"), (3, "text"), (4, "text"), (5, "text")]


def test_repair_and_a_run_that_write_by_turns_lose_nothing(one_slot: Agent) -> None:
    execution, expected = row(submit(one_slot)), []
    log = EventLog(execution.pk)
    for turn in range(4):
        log.emit("text", {"text": str(turn)})
        log.flush()
        note_dispatch(execution)
        expected += ["text", "repair"]
    assert log_of(execution) == list(enumerate(expected, start=1))


def test_what_was_stored_though_its_answer_got_lost_is_stored_once(one_slot: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = row(submit(one_slot))
    log = EventLog(execution.pk)
    log.emit("text", {"text": "one"})
    real = ExecutionEvent.objects.bulk_create

    def cut(batch: list[ExecutionEvent]) -> None:
        real(batch)
        raise OperationalError("the connection was lost after the commit")

    with monkeypatch.context() as patched:
        patched.setattr(ExecutionEvent.objects, "bulk_create", cut)
        with pytest.raises(DatabaseError):
            log.flush()
    log.emit("text", {"text": "two"})
    log.flush()
    log.flush()
    assert log_of(execution) == [(1, "text"), (2, "text")]


def test_a_pass_with_nothing_to_repair_tells_nothing(one_slot: Agent) -> None:
    begin(submit(one_slot))
    housekeeping.run_once()
    assert (repairs.counts(), ExecutionEvent.objects.count()) == ({}, 0)
