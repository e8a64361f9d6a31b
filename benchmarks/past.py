"""A past: agents whose slots have run one task after another, as rows."""

import random
from datetime import datetime, timedelta

from django.utils import timezone

from backlog.models import Execution, Status
from core.ids import new_id, new_token
from fleet.models import Agent, RuntimeKind

from . import fleet

#: How runs end, and how often of a hundred.
ENDINGS = {
    (Status.SUCCESS, ""): 86,
    (Status.FAILED, "agent_error"): 5,
    (Status.FAILED, "lease_lost"): 3,
    (Status.CANCELLED, "cancelled"): 6,
}
MESSAGES = ("Look at the weather", "<b>Summarise</b> yesterday's inbox & calendar", "لخص هذا من فضلك", "🚀 deploy it", "Nightly report")
BATCH = 2_000


def fill(*, agents: int, slots: int, hours: float, runs: int) -> int:
    """`agents` × `slots` lanes of `hours`, each with about `runs` runs; how many rows that is. The same each time."""
    chance = random.Random(7)
    made = [_agent(number, slots=slots) for number in range(agents)]
    return sum(_fill(agent, slots=slots, hours=hours, runs=runs, chance=chance) for agent in made)


def _agent(number: int, *, slots: int) -> Agent:
    return Agent.objects.create(name=f"past-{number:03d}", owner=fleet.owner(), runtime_kind=RuntimeKind.HTTP, max_parallel_tasks=slots)


def _fill(agent: Agent, *, slots: int, hours: float, runs: int, chance: random.Random) -> int:
    now = timezone.now()
    rows = [row for slot in range(1, slots + 1) for row in _lane(agent, slot, hours=hours, runs=runs, now=now, chance=chance)]
    rows += [_row(agent, chance, queued=now - timedelta(seconds=chance.random() * 1_000)) for _ in range(chance.choice((0, 0, 6)))]
    Execution.objects.bulk_create(rows, batch_size=BATCH)
    return len(rows)


def _lane(agent: Agent, slot: int, *, hours: float, runs: int, now: datetime, chance: random.Random) -> list[Execution]:
    each = hours * 3600 / runs
    at, rows = now - timedelta(hours=hours, seconds=chance.random() * each), []
    while at < now:
        ended = at + timedelta(seconds=1 + chance.expovariate(1.25 / each))
        queued = at - timedelta(seconds=chance.expovariate(1 / 60) if chance.random() < 0.4 else 0)
        rows.append(_row(agent, chance, queued=queued, slot=slot, started=at, ended=ended if ended < now else None))
        at = ended + timedelta(seconds=chance.expovariate(5 / each))
    return rows


def _row(
    agent: Agent,
    chance: random.Random,
    *,
    queued: datetime,
    slot: int | None = None,
    started: datetime | None = None,
    ended: datetime | None = None,
) -> Execution:
    [(status, code)] = chance.choices(list(ENDINGS), list(ENDINGS.values()))
    if ended is None:
        status, code = (Status.QUEUED if started is None else Status.RUNNING), ""
    return Execution(
        id=new_id(), agent=agent, agent_name=agent.name, message=chance.choice(MESSAGES), timeout_seconds=7_200, status=status,
        error_code=code, slot_number=slot, slot_token=new_token() if status == Status.RUNNING else None, created_at=queued,
        queued_at=queued, granted_at=started, started_at=started, completed_at=ended,
    )  # fmt: skip
