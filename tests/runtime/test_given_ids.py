"""Submitting under an id that the caller has made: one execution, however often and by however many at once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from backlog.models import Execution, Status
from capacity.manager import CapacityManager
from core.ids import new_id
from fleet.models import OnFull
from fleet.principals import Principal
from runtime.errors import ExecutionIdTaken
from runtime.services.submit import TaskRequest, submit_task

manager = CapacityManager()


def submit(agent, execution_id, *, on_full=OnFull.QUEUE):
    request = TaskRequest(message="once", on_full=on_full, execution_id=execution_id)
    return submit_task(principal=Principal.of_user(agent.owner), name=agent.name, request=request)


def test_the_execution_has_the_id_and_is_answered_with_ever_after(valkey, make_agent):
    agent, running, waiting = make_agent(limit=1, depth=1), new_id(), new_id()
    first = [submit(agent, running), submit(agent, waiting)]
    again = [submit(agent, running, on_full=OnFull.REJECT), submit(agent, waiting)]
    assert [(one.execution_id, one.queue_position, one.replayed) for one in first] == [(running, None, False), (waiting, 1, False)]
    assert [(one.execution_id, one.queue_position, one.replayed) for one in again] == [(running, None, True), (waiting, 1, True)]
    assert dict(Execution.objects.values_list("pk", "status")) == {running: Status.RUNNING, waiting: Status.QUEUED}


def test_a_refused_one_leaves_its_id_free(valkey, make_agent):
    agent, execution_id = make_agent(paused=True), new_id()
    with pytest.raises(Exception, match="is paused"):
        submit(agent, execution_id, on_full=OnFull.REJECT)
    assert not submit(agent, execution_id).replayed


def test_another_agents_execution_is_not_answered_with(valkey, make_agent):
    execution_id = new_id()
    submit(make_agent(), execution_id)
    with pytest.raises(ExecutionIdTaken) as refused:
        submit(make_agent(), execution_id)
    assert (refused.value.code, refused.value.data) == ("execution_id_taken", {"execution_id": execution_id})
    assert Execution.objects.count() == 1


@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_makes_it_and_no_slot_is_left_held(valkey, make_agent, limit):
    agent, execution_id, gate = make_agent(limit=limit), new_id(), threading.Barrier(8)

    def one(_):
        try:
            gate.wait()
            return submit(agent, execution_id)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = list(pool.map(one, range(8)))
    assert {answer.execution_id for answer in answers} == {execution_id}
    assert [answer.replayed for answer in answers].count(False) == 1
    manager.drain(agent.pk)  # two may have met so that the row is in line, and the slot of the other is back since
    row = Execution.objects.get()
    assert row.status == Status.RUNNING
    [holder] = manager.holders()
    assert (holder.execution_id, holder.token) == (execution_id, row.slot_token)
