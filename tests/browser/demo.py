"""A fleet worth looking at, as rows: what runs, waits, is paused, over its limit or lost, and the day that led there.

Made in a stack's own database by `manage.py shell`, for the checks of all pages and for the pictures in `docs/images/`. Nothing carries
these runs: a stack without workers and with long leases shows them as they are for as long as one likes.
"""

import json
import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from backlog.models import Execution, ExecutionEvent, Status, Trigger
from capacity.manager import CapacityManager
from core.ids import new_id, new_token
from fleet.models import Agent, ApiKey, AuditEntry, KeyScope, PublicLink, RuntimeKind, Session
from runtime.models import Schedule
from tests.browser.names import LONG_NAME

DAY = timedelta(days=1)
BATCH = 500
#: How runs end, and how often of a hundred.
ENDINGS = {
    (Status.SUCCESS, ""): 88,
    (Status.FAILED, "agent_error"): 5,
    (Status.FAILED, "timeout"): 2,
    (Status.FAILED, "lease_lost"): 1,
    (Status.CANCELLED, "cancelled"): 4,
}
ERRORS = {
    "agent_error": "The agent answered 500: upstream model is overloaded",
    "timeout": "The run took longer than its time limit of 3600 s",
    "lease_lost": "The worker that carried the run went away",
    "cancelled": "Cancelled by olga",
}
MESSAGES = (
    "Compare three ways to store time series",
    "Summarise this week's incidents for the board",
    "Draft release notes for version 4.2",
    "Check the figures in the quarterly report",
    "Find contradictions between the two contracts",
    "Sort last night's tickets by what they are about",
    "Write tests for the importer of invoices",
)
HOSTILE = (
    '<img src=x onerror="alert(1)"><b>Bold</b> & <script>alert(2)</script> {{ 7 * 7 }}',
    "تحقق من الأرقام في التقرير ربع السنوي ثم أرسل ملخصا",
    "🚀🧑‍🚀 deploy it 🏳️‍🌈 now, and \u202eread this backwards\u202c",
    "a" * 900,
    "Line one\n\n\n\tline four\r\nand \x1b[31mred\x1b[0m",
)


@dataclass(frozen=True)
class Kind:
    """An agent as it stands now, and how long its runs usually take."""

    name: str
    about: str
    limit: int
    running: int = 0
    waiting: int = 0
    paused: bool = False
    minutes: float = 20.0
    share: float = 0.8
    runtime: RuntimeKind = RuntimeKind.HTTP


FLEET = (
    Kind("contract-reader", "Reads contracts and finds what they contradict.", 4, running=4, waiting=3),
    Kind("data-cleaner", "Puts tables in order.", 10, running=4, minutes=11),
    Kind("deploy-bot", "Rolls out what was reviewed.", 3, running=1, minutes=35, share=0.4, runtime=RuntimeKind.COMMAND),
    Kind("inbox-triage", "Sorts what comes in at night.", 8, running=7, minutes=6),
    Kind("nightly-report", "Writes the report everybody reads at eight.", 1, minutes=50, share=0.2, runtime=RuntimeKind.COMMAND),
    Kind("research", "Looks things up and compares them.", 5, running=5, waiting=7, minutes=14),
    Kind("reviewer", "Reviews pull requests.", 3, running=5, waiting=2, minutes=9),
    Kind("summariser", "Makes long texts short.", 2, minutes=8, share=0.5, runtime=RuntimeKind.LLM),
    Kind("translator", "Twenty languages.", 6, running=2, waiting=5, paused=True, minutes=12),
)


def main() -> None:
    """Everybody's agents, and the slots that their rows hold; prints a browser session for each person."""
    chance, now = random.Random(11), timezone.now()
    olga = User.objects.get(username="olga")
    for kind in FLEET:
        _fill(kind, olga, now=now, chance=chance, messages=MESSAGES)
    _details(olga, now)
    _fill(
        Kind("only-one", "The first agent of somebody.", 3, running=1, waiting=0), _person("uno"), now=now, chance=chance, messages=MESSAGES
    )
    hedda = _person("hedda")
    _fill(Kind(LONG_NAME, "<b>About</b> " + "x" * 200, 10, running=12, waiting=4), hedda, now=now, chance=chance, messages=HOSTILE)
    _fill(Kind("xn--emoji", "🚀 " * 40, 1, running=1, waiting=2), hedda, now=now, chance=chance, messages=HOSTILE)
    _crowd(_person("fifty"), 50, now=now, chance=chance)
    _crowd(_person("thousand"), 1000, now=now, chance=chance)
    manager = CapacityManager()
    manager.refill()
    for _ in range(2):  # the first pass after a refill gives every holder a chance to renew
        manager.reclaim_stale()
    print(json.dumps({"sessions": {user.username: _session(user) for user in User.objects.all()}, "executions": _telling()}))  # noqa: T201


def _person(name: str) -> User:
    return User.objects.create_user(name, password=f"{name}-password")


def _session(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value


def _telling() -> dict[str, str]:
    """Executions worth a page: `{what it is: its id}`."""
    own = Execution.objects.filter(agent__owner__username="olga")
    found = {
        "running": own.filter(status=Status.RUNNING, agent_name="research").earliest("created_at"),
        "waiting": own.filter(status=Status.QUEUED, agent_name="research").earliest("queued_at"),
        "failed": own.filter(error_code="agent_error").latest("created_at"),
        "succeeded": own.filter(status=Status.SUCCESS, agent_name="research").latest("created_at"),
        "hostile": Execution.objects.filter(agent_name=LONG_NAME, message=HOSTILE[0], completed_at__isnull=False).latest("created_at"),
    }
    return {name: str(row.pk) for name, row in found.items()}


# -- One agent -----------------------------------------------------------------------------------------------------------
def _fill(kind: Kind, owner: User, *, now: datetime, chance: random.Random, messages: tuple[str, ...]) -> None:
    runtime: dict[str, Any] = {
        RuntimeKind.HTTP: {"url": f"http://{kind.name[:40]}.example:8100"},
        RuntimeKind.COMMAND: {"argv": ["python3", "agent.py"]},
        RuntimeKind.LLM: {"base_url": "http://models.example/v1", "model": "small"},
    }[kind.runtime]
    agent = Agent.objects.create(
        name=kind.name, description=kind.about, owner=owner, runtime_kind=kind.runtime, runtime=runtime, paused=kind.paused,
        max_parallel_tasks=kind.limit,
    )  # fmt: skip
    made = _Rows(agent, now=now, chance=chance, messages=messages)
    slots = max(kind.limit, kind.running)
    rows = [row for slot in range(1, slots + 1) for row in made.lane(kind, slot, runs=slot <= kind.running)]
    rows += [made.waiting(number) for number in range(kind.waiting)]
    Execution.objects.bulk_create(rows, batch_size=BATCH)
    ExecutionEvent.objects.bulk_create([event for row in rows for event in _events(row)], batch_size=BATCH)


@dataclass
class _Rows:
    """Makes the rows of one agent."""

    agent: Agent
    now: datetime
    chance: random.Random
    messages: tuple[str, ...]

    def lane(self, kind: Kind, slot: int, *, runs: bool) -> Iterator[Execution]:
        """What one slot has run since a day, one after the other, and what it runs now."""
        ends = self.now - timedelta(seconds=self.chance.uniform(20, kind.minutes * 45)) if runs else self.now
        at = self.now - DAY + timedelta(minutes=self.chance.random() * kind.minutes)
        while True:
            lasts = timedelta(minutes=0.3 + self.chance.expovariate(1 / kind.minutes))
            if at + lasts > ends - timedelta(seconds=5):
                break
            yield self._ended(slot, started=at, lasts=lasts)
            at += lasts + timedelta(minutes=self.chance.expovariate(kind.share / (1 - kind.share) / kind.minutes))
        if runs:
            yield self._row(status=Status.RUNNING, slot_number=slot, slot_token=new_token(), **self._begun(ends))

    def waiting(self, number: int) -> Execution:
        """One in line."""
        queued = self.now - timedelta(seconds=40 + 37 * number)
        return self._row(status=Status.QUEUED, created_at=queued, queued_at=queued, priority=8 if number == 1 else 5)

    def _ended(self, slot: int, *, started: datetime, lasts: timedelta) -> Execution:
        [(status, code)] = self.chance.choices(list(ENDINGS), list(ENDINGS.values()))
        done = status == Status.SUCCESS
        words = self.chance.randint(200, 9_000)
        return self._row(
            status=status, slot_number=slot, completed_at=started + lasts, error_code=code, error=ERRORS.get(code, ""),
            response="Three ways hold up. The first is the cheapest to run, the second the quickest to read." if done else None,
            input_tokens=words if done else None, output_tokens=words // 4 if done else None, cost_usd=words / 90_000 if done else None,
            **self._begun(started),
        )  # fmt: skip

    def _begun(self, started: datetime) -> dict[str, datetime]:
        waited = self.chance.expovariate(1 / 120) if self.chance.random() < 0.45 else 0
        queued = started - timedelta(seconds=waited)
        return {"created_at": queued, "queued_at": queued, "granted_at": started, "dispatched_at": started, "started_at": started}

    def _row(self, **columns: Any) -> Execution:
        trigger, source = self.chance.choice(((Trigger.MANUAL, "olga"), (Trigger.MCP, "planner"), (Trigger.SCHEDULE, "every morning")))
        return Execution(
            id=new_id(), agent=self.agent, agent_name=self.agent.name, message=self.chance.choice(self.messages), timeout_seconds=3_600,
            triggered_by=trigger, source_name=source, submitted_by=self.agent.owner, dispatches=1,
            **columns,
        )  # fmt: skip


def _events(row: Execution) -> Iterator[ExecutionEvent]:
    """What the run said: only the latest are worth their rows."""
    began = row.started_at
    if began is None or began < timezone.now() - timedelta(minutes=90):
        return
    said = [("progress", {"step": n, "of": 4, "text": f"Step {n} of 4"}) for n in (1, 2)]
    said += [("tool_use", {"name": "search", "input": {"query": row.message[:60]}}), ("tool_result", {"text": "14 results"})]
    said += [("text", {"text": f"Reading the third of them: {row.message}"})]
    if row.error:
        said += [("error", {"text": row.error})]
    for seq, (kind, data) in enumerate(said, 1):
        yield ExecutionEvent(execution=row, seq=seq, type=kind, data=data, at=began + timedelta(seconds=4 * seq))


# -- The rest ------------------------------------------------------------------------------------------------------------
def _details(olga: User, now: datetime) -> None:
    """What else the pages show: a limit for a time, a lost slot, a retry, keys, links, schedules, the trail of changes."""
    research = Agent.objects.get(name="research")
    Agent.objects.filter(pk=research.pk).update(
        base_max_parallel_tasks=3, override_until=now + timedelta(hours=2, minutes=20), changed_by=olga, changed_at=now, settings_version=4
    )
    lost = Execution.objects.filter(agent_name="deploy-bot", error_code="", status=Status.SUCCESS).latest("completed_at")
    Execution.objects.filter(pk=lost.pk).update(
        status=Status.FAILED, error_code="lease_lost", error=ERRORS["lease_lost"], slot_token=new_token(), slot_number=2, timeout_seconds=60
    )
    failed = Execution.objects.filter(agent__owner=olga, error_code="agent_error").latest("created_at")
    again = Execution.objects.filter(agent=failed.agent, created_at__gt=failed.created_at).earliest("created_at")
    Execution.objects.filter(pk=again.pk).update(retry_of=failed, triggered_by=Trigger.RETRY, message=failed.message)
    Session.objects.create(agent=research, owner=olga, title="Storage of time series")
    _changes(olga, research, now)
    for name, scope, agent in (("laptop", KeyScope.USER, None), ("nightly job", KeyScope.AGENT, research)):
        ApiKey.objects.create(name=name, owner=olga, scope=scope, agent=agent, prefix=f"trinity_{secrets.token_hex(2)}", digest=_digest())
    PublicLink.objects.create(agent=research, name="For the whole team", prefix="link_7f3a", digest=_digest(), created_by=olga)
    Schedule.objects.create(
        agent=Agent.objects.get(name="nightly-report"), name="every morning", message="Write the report", cron="30 6 * * 1-5",
        timezone="Europe/Berlin", made_by=olga, anchor_at=now, next_due_at=now + timedelta(hours=9),
    )  # fmt: skip


def _changes(olga: User, agent: Agent, now: datetime) -> None:
    limits = (3, 4, 3, 5)
    for number, (before, after) in enumerate(pairwise(limits)):
        AuditEntry.objects.create(
            at=now - timedelta(hours=7 - 2 * number), actor=olga, actor_name="olga", agent=agent, action="max_parallel_tasks",
            before=before, after=after,
        )  # fmt: skip


def _digest() -> str:
    return sha256(secrets.token_bytes(16)).hexdigest()


def _crowd(owner: User, count: int, *, now: datetime, chance: random.Random) -> None:
    """Many agents; of each some run, and a tenth has a line."""
    made = Agent.objects.bulk_create(
        Agent(
            name=f"{owner.username}-{number:04d}",
            owner=owner,
            runtime_kind=RuntimeKind.HTTP,
            max_parallel_tasks=3,
            runtime={"url": "http://a.example"},
        )
        for number in range(count)
    )
    rows: list[Execution] = []
    for number, agent in enumerate(made):
        makes = _Rows(agent, now=now, chance=chance, messages=MESSAGES)
        runs = number % 4
        rows += [next(reversed(list(makes.lane(Kind("", "", 3, minutes=600), slot, runs=True)))) for slot in range(1, runs + 1)]
        rows += [makes.waiting(place) for place in range(2) if runs == 3]
    Execution.objects.bulk_create(rows, batch_size=BATCH)
