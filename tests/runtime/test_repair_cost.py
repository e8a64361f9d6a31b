"""What a pass costs while all is well: counted, not timed."""

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import redis
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from backlog.models import Execution, Status
from capacity import repairs
from capacity.manager import CapacityManager
from fleet.models import Agent
from runtime import housekeeping
from runtime.services import repair

pytestmark = [pytest.mark.flows, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

AGENTS, RUNNING, QUEUED, ENDED = 1000, 3, 3, 4
#: Whatever the number of agents; the other chores of housekeeping have their share.
MOST_QUERIES, MOST_TRIPS = 27, 15


@pytest.fixture
def busy_fleet(make_agent: Callable[..., Agent], valkey: redis.Redis) -> None:
    """1 000 agents with three slots taken, three tasks in line and four ended, each; nothing is wrong with any."""
    pattern = make_agent(limit=3)
    Agent.objects.bulk_create(
        Agent(name=f"busy-{number}", owner=pattern.owner, max_parallel_tasks=RUNNING, runtime_kind="command") for number in range(AGENTS)
    )
    rows = [row for agent in Agent.objects.filter(name__startswith="busy-").defer("runtime") for row in rows_of(agent)]
    Execution.objects.bulk_create(rows, batch_size=500)
    Execution.objects.filter(status=Status.RUNNING).update(started_at=Now(), granted_at=Now(), dispatched_at=Now())
    Execution.objects.filter(status=Status.RUNNING).update(granted_at=F("granted_at") - timedelta(hours=1))
    CapacityManager().refill()
    repair.repair_lost()


def rows_of(agent: Agent) -> Iterator[Execution]:
    """Ten rows of one agent."""
    states = [Status.RUNNING] * RUNNING + [Status.QUEUED] * QUEUED + [Status.SUCCESS] * ENDED
    for number, status in enumerate(states, start=1):
        token = uuid.uuid4() if status == Status.RUNNING else None
        yield Execution(
            agent=agent, agent_name=agent.name, status=status, slot_token=token, slot_number=number if token else None,
            message="m", timeout_seconds=900, completed_at=Now() if status == Status.SUCCESS else None,
        )  # fmt: skip


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that something is sent to the store: a pipeline is sent once."""
    sent: list[int] = []
    real = redis.Connection.send_packed_command

    def counted(self: redis.Connection, command: object, check_health: bool = True) -> None:
        sent.append(1)
        real(self, command, check_health)

    monkeypatch.setattr(redis.Connection, "send_packed_command", counted)
    return sent


@pytest.mark.usefixtures("busy_fleet")
def test_a_pass_over_a_whole_fleet_is_a_few_queries_and_round_trips(trips: list[int]) -> None:
    for changes in ({}, {"max_parallel_tasks": RUNNING + 2, "paused": True}):  # full, and free but not to be started
        Agent.objects.filter(name__startswith="busy-").update(description="busy", **changes)
        trips.clear()
        with CaptureQueriesContext(connection) as queries:
            housekeeping.run_once()
        assert len(queries) <= MOST_QUERIES, [query["sql"][:120] for query in queries]
        assert len(trips) <= MOST_TRIPS
    assert repairs.counts() == {"slots_rebuilt": 1}


def test_two_processes_compare_the_fleet_once_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    CapacityManager().refill()
    made: list[int] = []
    monkeypatch.setattr(repair, "compare", lambda: made.append(1))
    for _ in range(2):
        assert housekeeping.Housekeeper()._attempt(housekeeping.reconcile_in_turn)
    assert len(made) == 1
