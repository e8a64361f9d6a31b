"""A run from its grant to its result, and on to the next in line: rows and gate seen after each step."""

import threading
import uuid
from collections.abc import Callable

import pytest
import redis

from backlog import services as backlog
from backlog.models import Execution, ExecutionEvent, Status
from capacity import slots
from capacity.manager import CapacityManager
from fleet.models import Agent, OnFull
from fleet.principals import Principal
from runtime.runtimes.base import Result
from runtime.services import controls, runs
from runtime.services.submit import Submitted, TaskRequest, submit_task

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

Submit = Callable[..., Submitted]


@pytest.fixture
def submit(agent: Agent) -> Submit:
    """Submits to `agent`, or another, as its owner: `submit("text", agent=…, **request)`."""

    def call(message: str = "hello", *, agent: Agent = agent, **request: object) -> Submitted:
        asked = TaskRequest(message=message, on_full=OnFull.QUEUE, **request)  # type: ignore[arg-type]
        return submit_task(principal=Principal.of_user(agent.owner), name=agent.name, request=asked)

    return call


def row(submitted: Submitted) -> Execution:
    """The row as it is now."""
    return Execution.objects.get(pk=submitted.execution_id)


def carry(submitted: Submitted) -> None:
    """What a worker does with the message of a granted execution."""
    granted = row(submitted)
    assert granted.slot_token is not None
    runs.run_execution(execution_id=granted.pk, token=granted.slot_token)


def at_rest(agent: Agent) -> bool:
    """Whether no slot is taken and no row holds one."""
    return not slots.state(agent.name).holders and not Execution.objects.filter(agent=agent, slot_token__isnull=False).exists()


def test_a_granted_task_runs_and_gives_its_slot_back(agent: Agent, submit: Submit) -> None:
    submitted = submit("hello")
    assert submitted.queue_position is None
    assert [holder.number for holder in slots.state(agent.name).holders] == [1]
    carry(submitted)
    ended = row(submitted)
    assert (ended.status, ended.response, ended.slot_number, ended.slot_token) == (Status.SUCCESS, "hello", 1, None)
    assert ended.started_at is not None
    assert ended.completed_at is not None
    assert at_rest(agent)


def test_one_thread_carries_the_whole_line_in_order(make_agent: Callable[..., Agent], submit: Submit) -> None:
    agent = make_agent(limit=1)
    submitted = [submit(f"task {number}", agent=agent) for number in range(5)]
    assert [one.queue_position for one in submitted] == [None, 1, 2, 3, 4]
    carry(submitted[0])
    ended = [row(one) for one in submitted]
    assert [one.status for one in ended] == [Status.SUCCESS] * 5
    starts = [one.started_at for one in ended]
    assert starts == sorted(starts)
    assert {one.slot_number for one in ended} == {1}
    assert at_rest(agent)


def test_higher_priority_goes_first_and_equals_stay_in_order(make_agent: Callable[..., Agent], submit: Submit) -> None:
    agent = make_agent(limit=1)
    first = submit("first", agent=agent)
    low, high, other_high = submit("low", agent=agent), submit("high", agent=agent, priority=9), submit("other", agent=agent, priority=9)
    assert (low.queue_position, high.queue_position, other_high.queue_position) == (1, 1, 2)
    carry(first)
    started = sorted((row(one) for one in (low, high, other_high)), key=lambda one: one.started_at)  # type: ignore[arg-type,return-value]
    assert [one.message for one in started] == ["high", "other", "low"]


def test_the_same_message_twice_is_one_run(agent: Agent, submit: Submit) -> None:
    submitted = submit("hello")
    token = row(submitted).slot_token
    assert token is not None
    threads = [
        threading.Thread(target=runs.run_execution, kwargs={"execution_id": submitted.execution_id, "token": token}) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    runs.run_execution(execution_id=submitted.execution_id, token=token)
    assert row(submitted).status == Status.SUCCESS
    assert ExecutionEvent.objects.filter(execution_id=submitted.execution_id).count() <= 1
    assert at_rest(agent)


def test_a_message_with_another_token_is_dropped(agent: Agent, submit: Submit) -> None:
    submitted = submit("hello")
    runs.run_execution(execution_id=submitted.execution_id, token=uuid.uuid4())
    assert row(submitted).status == Status.RUNNING
    assert row(submitted).started_at is None
    assert len(slots.state(agent.name).holders) == 1


def test_a_start_whose_slot_is_gone_goes_back_to_its_place(make_agent: Callable[..., Agent], submit: Submit, valkey: redis.Redis) -> None:
    agent = make_agent(limit=1)
    first, second = submit("first", agent=agent), submit("second", agent=agent)
    granted = row(first)
    assert granted.slot_token is not None
    slots.release(lease=runs._lease_of(granted))
    runs.run_execution(execution_id=granted.pk, token=granted.slot_token)
    again = row(first)
    # Put back in front of the second, and granted anew under another token by the drain that followed.
    assert again.status == Status.RUNNING
    assert again.slot_token not in (None, granted.slot_token)
    assert row(second).status == Status.QUEUED
    carry(first)
    assert (row(first).status, row(second).status) == (Status.SUCCESS, Status.SUCCESS)


def test_a_cancel_while_queued_never_runs(make_agent: Callable[..., Agent], submit: Submit) -> None:
    agent = make_agent(limit=1)
    first, second = submit("first", agent=agent), submit("second", agent=agent)
    principal = Principal.of_user(agent.owner)
    assert controls.cancel_execution(principal=principal, execution_id=second.execution_id) == "cancelled"
    assert controls.cancel_execution(principal=principal, execution_id=second.execution_id) == "cancelled"
    carry(first)
    assert row(second).status == Status.CANCELLED
    assert row(second).started_at is None
    assert at_rest(agent)


def test_a_cancel_of_a_granted_one_frees_its_slot_for_the_next(make_agent: Callable[..., Agent], submit: Submit) -> None:
    agent = make_agent(limit=1)
    first, second = submit("first", agent=agent), submit("second", agent=agent)
    token = row(first).slot_token
    assert token is not None
    assert controls.cancel_execution(principal=Principal.of_user(agent.owner), execution_id=first.execution_id) == "cancelled"
    assert row(second).status == Status.RUNNING
    runs.run_execution(execution_id=first.execution_id, token=token)
    assert row(first).status == Status.CANCELLED
    carry(second)
    assert row(second).status == Status.SUCCESS
    assert at_rest(agent)


def test_a_run_that_reports_success_after_its_cancel_stays_cancelled(agent: Agent, submit: Submit) -> None:
    submitted = submit("hello")
    granted = row(submitted)
    assert granted.slot_token is not None
    begun = runs.begin_run(execution_id=granted.pk, token=granted.slot_token)
    assert begun is not None
    assert controls.cancel_execution(principal=Principal.of_user(agent.owner), execution_id=granted.pk) == "cancelling"
    runs.end_run(begun, Result(response="done"), in_place=True)
    ended = row(submitted)
    assert (ended.status, ended.error_code, ended.response) == (Status.CANCELLED, "cancelled", None)
    assert at_rest(agent)


def test_a_result_after_repair_changes_nothing(agent: Agent, submit: Submit) -> None:
    submitted = submit("hello")
    granted = row(submitted)
    assert granted.slot_token is not None
    begun = runs.begin_run(execution_id=granted.pk, token=granted.slot_token)
    assert begun is not None
    assert backlog.fence_lost(execution_id=granted.pk, token=granted.slot_token, error_code="worker_lost", error="lost")
    runs.end_run(begun, Result(response="late"), in_place=True)
    ended = row(submitted)
    assert (ended.status, ended.error_code, ended.response) == (Status.FAILED, "worker_lost", None)
    assert at_rest(agent)


def test_a_raised_limit_starts_what_waits(make_agent: Callable[..., Agent], submit: Submit) -> None:
    agent = make_agent(limit=1)
    submitted = [submit(f"{number}", agent=agent) for number in range(5)]
    controls.set_limit(principal=Principal.of_user(agent.owner), name=agent.name, changes={"max_parallel_tasks": 4})
    assert [row(one).status for one in submitted] == [Status.RUNNING] * 4 + [Status.QUEUED]
    assert sorted(holder.number for holder in slots.state(agent.name).holders) == [1, 2, 3, 4]


def test_a_cut_limit_admits_nothing_until_there_is_room(make_agent: Callable[..., Agent], submit: Submit) -> None:
    agent = make_agent(limit=3)
    submitted = [submit(f"{number}", agent=agent) for number in range(5)]
    controls.set_limit(principal=Principal.of_user(agent.owner), name=agent.name, changes={"max_parallel_tasks": 1})
    begun = []
    for one in submitted[:3]:
        granted = row(one)
        assert granted.slot_token is not None
        begun.append(runs.begin_run(execution_id=granted.pk, token=granted.slot_token))
    for run in begun[:2]:
        assert run is not None
        runs.end_run(run, Result(response="ok"), in_place=True)
    assert [row(one).status for one in submitted[3:]] == [Status.QUEUED] * 2
    assert begun[2] is not None
    following = runs.end_run(begun[2], Result(response="ok"), in_place=True)
    assert following is not None
    assert following.row.pk == submitted[3].execution_id
    assert len(slots.state(agent.name).holders) == 1


def test_an_emptied_gate_keeps_what_runs_and_admits_no_fourth(agent: Agent, submit: Submit, valkey: redis.Redis) -> None:
    submitted = [submit(f"{number}") for number in range(5)]
    for one in submitted[:3]:
        granted = row(one)
        assert granted.slot_token is not None
        assert runs.begin_run(execution_id=granted.pk, token=granted.slot_token)
    valkey.flushdb()
    assert submit("late").queue_position == 3
    CapacityManager().rebuild()
    held = slots.state(agent.name).holders
    assert {holder.execution_id for holder in held} == {one.execution_id for one in submitted[:3]}
    assert sorted(holder.number for holder in held) == [1, 2, 3]


def test_an_emptied_gate_puts_what_never_started_back_in_line_and_grants_it_anew(agent: Agent, submit: Submit, valkey: redis.Redis) -> None:
    submitted = [submit(f"{number}") for number in range(5)]
    before = [row(one).slot_token for one in submitted]
    valkey.flushdb()
    admissions = CapacityManager().rebuild()
    assert {one.execution_id for one in admissions} == {one.execution_id for one in submitted[:3]}
    assert all(row(one).slot_token not in (None, token) for one, token in zip(submitted[:3], before, strict=False))
    assert [row(one).status for one in submitted[3:]] == [Status.QUEUED] * 2
