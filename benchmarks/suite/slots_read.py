"""What reading the whole fleet's load costs, beside one PING and one SELECT of as many rows."""

import time
import uuid
from collections.abc import Callable

from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from capacity import slots
from capacity.leases import Lease
from capacity.selectors import meters
from core.ids import new_id, new_token
from core.redis import client
from fleet import services
from fleet.models import Agent, RuntimeKind
from fleet.principals import Principal
from fleet.selectors import agents_visible_to

from .. import fleet
from ..figures import Figure, median, ms, spread
from . import Options

AGENTS, SLOTS, BLOCKS = 1000, 10, 20


def measure(options: Options) -> list[Figure]:
    """The reading itself, then the whole request short of the network; then how often it asks."""
    fleet.open_gate()
    names = _fill(AGENTS)
    key = services.create_key(owner=fleet.owner(), scope="user", name="bench").key
    api = APIClient(SERVER_NAME="localhost", headers={"Authorization": f"Bearer {key}"})
    principal = Principal.of_user(fleet.owner())

    def read() -> None:
        loads = meters(agents_visible_to(principal).only("name"))
        if len(loads) != len(names) or any(load.active != SLOTS for load in loads.values()):
            raise RuntimeError("not what was filled")

    def request() -> None:
        if api.get("/api/agents/slots").status_code != 200:
            raise RuntimeError("not answered")

    return [_compared("reading", read), _compared("answering GET /api/agents/slots, network apart", request), _queries(request)]


def _fill(count: int) -> list[str]:
    """Agents with all their slots taken, without rows: nobody looks at those here."""
    agents = [
        Agent(
            name=f"bench-{number:04d}-{uuid.uuid4().hex[:4]}", owner=fleet.owner(), runtime_kind=RuntimeKind.HTTP, max_parallel_tasks=SLOTS
        )
        for number in range(count)
    ]
    Agent.objects.bulk_create(agents)
    for agent in agents:
        for _ in range(SLOTS):
            lease = Lease(agent=agent.name, execution_id=new_id(), token=new_token(), timeout_seconds=900)
            slots.acquire(lease=lease, limit=SLOTS, fleet_limit=None, preview="")
    return [agent.name for agent in agents]


def _floor() -> None:
    client().ping()
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, name, max_parallel_tasks, paused FROM fleet_agent WHERE deleted_at IS NULL ORDER BY name")
        cursor.fetchall()


def _compared(what: str, ours: Callable[[], None]) -> Figure:
    ours()
    _floor()
    pairs = [(_timed(ours), _timed(_floor)) for _ in range(BLOCKS)]
    mine, floor = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    return Figure(
        what=f"{what}, {AGENTS:,} agents × {SLOTS} slots, beside PING + SELECT", ours=ms(mine), floor=ms(floor),
        ratio=median([a / b for a, b in pairs]), goal=3.0, note=f"{BLOCKS} interleaved, {spread([a / b for a, b in pairs])}",
    )  # fmt: skip


def _timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _queries(request: Callable[[], None]) -> Figure:
    """With a thousand agents as with ten more: the ratio of the counts is 1 where they don't grow."""
    before = _counted(request)
    _fill(10)
    after = _counted(request)
    return Figure(
        what="queries of GET /api/agents/slots, with more agents beside fewer",
        ours=str(after),
        floor=str(before),
        ratio=after / before,
        goal=1.0,
    )


def _counted(request: Callable[[], None]) -> int:
    with CaptureQueriesContext(connection) as captured:
        request()
    return len(captured)
