"""A lost run of an HTTP agent: its slot waits until the agent says that the work is over, and the agent is asked until it does."""

import json
import threading
from collections.abc import Callable

import pytest
import redis

from backlog.models import Execution, Status
from capacity import keys, repairs
from capacity.leases import HARD_LIMIT_MARGIN_SECONDS
from capacity.manager import CapacityManager
from core.embedded_store import free_port
from fleet.models import Agent
from runtime import dispatch, tasks
from runtime.services import repair
from runtime.services.submit import Submitted
from tests.ageing import age_ending
from tests.agents.server import AgentServer
from tests.runtime.repairing import QUEUE, begin, end_lease, hear_all, held, kinds, messages, row, submit, told

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

MakeAgent = Callable[..., Agent]
Until = Callable[..., object]
EARLY_SECONDS = 6


@pytest.fixture(autouse=True)
def _open_gate(valkey: redis.Redis) -> None:
    CapacityManager().refill()
    repair.repair_lost()


@pytest.fixture
def nowhere(make_agent: MakeAgent) -> Agent:
    """An agent with one slot at an address where nobody listens."""
    return make_agent(limit=1, runtime={"kind": "http", "url": f"http://127.0.0.1:{free_port()}"})


def lose(valkey: redis.Redis, agent: Agent) -> Submitted:
    """A run of the agent's that was begun and whose worker is lost; every message so far was heard."""
    lost = submit(agent)
    begin(lost)
    end_lease(valkey, lost)
    hear_all(valkey)
    return lost


def nobody_asks() -> bool:
    """Whether no thread of this process asks an agent."""
    return all(thread.name != "terminate" for thread in threading.enumerate())


def test_an_agent_is_asked_at_once_and_then_with_growing_pauses_by_whoever_makes_the_pass(nowhere: Agent, valkey: redis.Redis) -> None:
    lost = lose(valkey, nowhere)
    token = row(lost).slot_token
    for asked, pause in enumerate((1, 2, 4, 8, 16, 32, 60, 60, 60), start=1):
        repair.repair_lost()
        assert (messages(valkey, dispatch.TERMINATE_LOST), repairs.counts()["asked_to_end"]) == (1, asked)
        assert float(valkey.hget(keys.ending(token), "pause")) == pause  # type: ignore[arg-type]
        hear_all(valkey)
        if pause > EARLY_SECONDS:  # with less to spare a slow machine would be told apart from a fast one
            age_ending(valkey, token, pause - EARLY_SECONDS)
            repair.repair_lost()
            assert messages(valkey, dispatch.TERMINATE_LOST) == 0
        age_ending(valkey, token, pause)
    assert (row(lost).status, row(lost).slot_token, held(nowhere)) == (Status.FAILED, token, [str(lost.execution_id)])
    asked_at = [seen["told_seconds"] for kind, seen in told(lost) if kind == "asked_to_end"]
    assert (len(asked_at), asked_at[0], asked_at) == (9, 0, sorted(asked_at))


def test_the_agents_word_frees_the_slot(make_agent: MakeAgent, agent_server: AgentServer, valkey: redis.Redis) -> None:
    agent = make_agent(limit=1, runtime={"kind": "http", "url": agent_server.url})
    lost = lose(valkey, agent)
    waiting = submit(agent, "waits")
    repair.repair_lost()
    (message,) = valkey.lrange(QUEUE, 0, -1)  # type: ignore[misc]
    assert json.loads(message)["headers"]["task"] == dispatch.TERMINATE_LOST
    tasks.terminate_lost(str(lost.execution_id), str(row(lost).slot_token))
    assert agent_server.terminated == [str(lost.execution_id)]
    assert held(agent) == [str(waiting.execution_id)]
    assert told(lost)[-1] == ("slot_given_back", {"by": "agent", "slot_number": 1})
    tasks.terminate_lost(str(lost.execution_id), str(row(waiting).slot_token))
    assert held(agent) == [str(waiting.execution_id)]


def test_the_housekeeper_asks_itself_where_no_worker_has_a_free_thread(
    make_agent: MakeAgent, agent_server: AgentServer, valkey: redis.Redis, until: Until
) -> None:
    agent = make_agent(limit=2, runtime={"kind": "http", "url": agent_server.url})
    lost = lose(valkey, agent)
    submit(agent, "whose message nobody takes")
    repair.repair_lost()
    until(lambda: row(lost).slot_token is None)
    assert (agent_server.terminated, messages(valkey, dispatch.TERMINATE_LOST)) == ([str(lost.execution_id)], 0)
    until(nobody_asks)
    assert len(held(agent)) == 1


def test_the_housekeeper_asks_itself_while_the_broker_is_away(
    make_agent: MakeAgent, agent_server: AgentServer, valkey: redis.Redis, until: Until
) -> None:
    agent = make_agent(limit=1, runtime={"kind": "http", "url": agent_server.url})
    lost = lose(valkey, agent)
    dispatch.broker.failed()
    repair.repair_lost()
    until(lambda: row(lost).slot_token is None)
    until(nobody_asks)
    assert held(agent) == []
    dispatch.broker.recovered()
    assert agent_server.terminated == [str(lost.execution_id)]


def test_an_agent_that_is_never_reached_keeps_the_slot_to_the_hard_limit(
    nowhere: Agent, valkey: redis.Redis, age_row: Callable[..., Execution]
) -> None:
    lost = lose(valkey, nowhere)
    repair.repair_lost()
    tasks.terminate_lost(str(lost.execution_id), str(row(lost).slot_token))
    age_row(row(lost), row(lost).timeout_seconds + HARD_LIMIT_MARGIN_SECONDS - 30)
    repair.repair_lost()
    assert held(nowhere) == [str(lost.execution_id)]
    age_row(row(lost), 31)
    repair.repair_lost()
    assert held(nowhere) == []
    assert told(lost)[-1] == ("slot_given_back", {"by": "hard_limit", "slot_number": 1})


def test_a_flush_makes_the_pauses_begin_anew_and_frees_nothing(nowhere: Agent, valkey: redis.Redis) -> None:
    lost = lose(valkey, nowhere)
    repair.repair_lost()
    valkey.flushdb()
    CapacityManager().refill()
    assert held(nowhere) == [str(lost.execution_id)]
    repair.repair_lost()
    assert (held(nowhere), kinds(lost).count("asked_to_end")) == ([str(lost.execution_id)], 2)
