"""A thousand callers who wait for a result in one web process, and what they cost everybody else there."""

import asyncio
import http.client
import json
import secrets
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

import psutil

from backlog.models import Execution, IdempotencyKey, Status
from core import events
from fleet import services
from fleet.models import Agent
from fleet.principals import Principal
from runtime.events import ExecutionFinished
from runtime.views.preferences import idempotency_with

from .. import fleet
from ..figures import Figure, median, ms, percentile, spread
from ..ground import until
from ..web import HOST, Web, served
from . import Options

CALLERS, CALLERS_IN_FULL = 1_000, 3_000
#: Requests of a block, one after the other; one block with nobody waiting before each beside those who wait, and one after it.
BLOCK = 300
#: Callers come this many at once.
AT_ONCE = 32
T = TypeVar("T")


def measure(options: Options) -> list[Figure]:
    """Rounds of: nobody waits, all wait, half of them hang up, the others get their results, nobody waits."""
    fleet.open_gate()
    key = services.create_key(owner=fleet.owner(), scope="user", name="bench").key
    callers = CALLERS_IN_FULL if options.full else CALLERS
    with served() as web, _Loop() as loop:
        others = _Others(web, key=key)
        others.block()
        rounds = [_Round(web, key=key, others=others, loop=loop, callers=callers).run() for _ in range(min(options.rounds, 3))]
    ratios = [one.held / one.idle for one in rounds]
    first = rounds[0]
    return [
        Figure(
            what=f"p95 of other requests, {callers:,} sync callers held in the same process, beside nobody waiting",
            ours=ms(median([one.held for one in rounds])), floor=ms(median([one.idle for one in rounds])), ratio=median(ratios), goal=2.0,
            note=f"{len(rounds)} rounds of {BLOCK} requests before, beside and after them, {spread(ratios)}",
        ),
        Figure(
            what="memory of a held call, beside the 64 KiB that a thread's stack would take at least",
            ours=f"{first.bytes_each / 1024:.1f} KiB", floor="64 KiB", ratio=first.bytes_each / 65_536, goal=1.0,
            note=f"{first.threads} threads in the process; the first round, in which its memory grew",
        ),
        Figure(
            what=f"{callers // 2:,} callers hang up: until the process has noticed, beside the 5 s between two looks",
            ours=ms(median([one.noticed for one in rounds])), floor="5 s", ratio=median([one.noticed for one in rounds]) / 5, goal=1.0,
        ),
        Figure(
            what=f"{callers - callers // 2:,} results at once: until the last caller has the answer, beside one request each in turn",
            ours=ms(median([one.answered for one in rounds])), floor=ms(median([one.in_turn for one in rounds])),
            ratio=median([one.answered / one.in_turn for one in rounds]),
        ),
    ]  # fmt: skip


class _Loop:
    """An event loop on a thread of its own: the callers live there."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, done there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Others:
    """Whoever has nothing to do with the waiting: reads of load and of executions, on one connection."""

    def __init__(self, web: Web, *, key: str) -> None:
        self._web = web
        self._headers = {"Authorization": f"Bearer {key}"}

    def block(self) -> list[float]:
        """The seconds of each request of a block."""
        connection = http.client.HTTPConnection(HOST, self._web.port, timeout=60)
        taken = [self._taken(connection, path) for _ in range(BLOCK // 2) for path in ("/api/agents/slots", "/api/executions/?limit=5")]
        connection.close()
        return taken

    def _taken(self, connection: http.client.HTTPConnection, path: str) -> float:
        began = time.perf_counter()
        connection.request("GET", path, headers=self._headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return time.perf_counter() - began


class _Round:
    """One time through."""

    def __init__(self, web: Web, *, key: str, others: _Others, loop: _Loop, callers: int) -> None:
        self._process = psutil.Process(web.process.pid)
        self._others, self._loop, self._count = others, loop, callers
        self._callers = _Callers(web, key=key, agent=fleet.make_agent(slots=1))

    def run(self) -> "_Round":
        """Itself, with the figures."""
        before, memory = self._others.block(), self._memory()
        waiting = self._callers.prepare(self._count)
        began_with = self._open()
        self._loop.run(self._callers.call(waiting))
        until(self._is_quiet)
        self.bytes_each = max(0, self._memory() - memory) / self._count
        self.threads = self._process.num_threads()
        self.held = percentile(self._others.block(), 0.95)
        if self._callers.answers or self._open() < began_with + self._count:
            raise RuntimeError(f"not all are held: {self._open() - began_with} are, and {self._callers.answers[:1]} was answered")
        leaving, staying = waiting[: self._count // 2], waiting[self._count // 2 :]
        self.noticed = _seconds(lambda: self._loop.run(self._callers.hang_up(leaving)), lambda: self._open() <= began_with + len(staying))
        self.answered = _seconds(lambda: self._callers.finish(staying), lambda: len(self._callers.answers) >= len(staying))
        if wrong := [line for line in self._callers.answers if b" 200 " not in line]:
            raise RuntimeError(f"not their result: {wrong[0]!r}")
        self._loop.run(self._callers.hang_up(staying))
        until(lambda: self._open() <= began_with)
        idle = before + self._others.block()
        self.idle, self.in_turn = percentile(idle, 0.95), median(idle) * len(staying)
        return self

    def _memory(self) -> int:
        return int(self._process.memory_info().rss)

    def _open(self) -> int:
        return sum(1 for one in self._process.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED and one.raddr)

    def _is_quiet(self) -> bool:
        """All that came was taken in: the process has hardly anything to do."""
        return self._process.cpu_percent(interval=1.0) < 15


class _Callers:
    """Sync callers who each wait for an execution of their own, which no worker runs."""

    def __init__(self, web: Web, *, key: str, agent: Agent) -> None:
        self._web, self._key, self._agent = web, key, agent
        self._open: dict[str, tuple[asyncio.StreamWriter, asyncio.Task[None]]] = {}
        #: The first line of each answer.
        self.answers: list[bytes] = []

    def prepare(self, count: int) -> list[Execution]:
        """Executions in line, each with the key by which its caller asks for its result: submitting isn't measured here."""
        rows = Execution.objects.bulk_create(
            Execution(agent=self._agent, agent_name=self._agent.name, status=Status.QUEUED, message="wait", timeout_seconds=900)
            for _ in range(count)
        )
        principal = Principal.of_user(fleet.owner())
        digest = idempotency_with("x", principal=principal, said=_BODY).body_digest
        IdempotencyKey.objects.bulk_create(
            IdempotencyKey(caller=principal.caller, agent=self._agent, key=str(row.pk), body_digest=digest, execution=row) for row in rows
        )
        return rows

    async def call(self, rows: list[Execution]) -> None:
        """Send all the calls."""
        gate = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._call(row, gate) for row in rows))

    async def _call(self, row: Execution, gate: asyncio.Semaphore) -> None:
        async with gate:
            reader, writer = await asyncio.open_connection(HOST, self._web.port)
            writer.write(self._request(row))
            await writer.drain()
        self._open[str(row.pk)] = writer, asyncio.create_task(self._hear(reader))

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        self.answers.append(await reader.readline())

    def _request(self, row: Execution) -> bytes:
        body = json.dumps(_BODY)
        head = [
            f"POST /api/agents/{self._agent.name}/task HTTP/1.1", f"Host: {HOST}", f"Authorization: Bearer {self._key}",
            "Content-Type: application/json", f"Content-Length: {len(body)}", f"Idempotency-Key: {row.pk}",
        ]  # fmt: skip
        return "\r\n".join([*head, "", body]).encode()

    async def hang_up(self, rows: list[Execution]) -> None:
        """Close their connections without a word."""
        for row in rows:
            writer, hearing = self._open.pop(str(row.pk))
            hearing.cancel()
            writer.close()

    def finish(self, rows: list[Execution]) -> None:
        """Let their executions end, as a worker would tell it."""
        ids = [row.pk for row in rows]
        for start in range(0, len(ids), 500):
            Execution.objects.filter(pk__in=ids[start : start + 500]).update(
                status=Status.SUCCESS, response=secrets.token_hex(32), completed_at="2030-01-01T00:00:00Z"
            )
        events.publish(*(ExecutionFinished(execution_id=pk, agent=self._agent.name) for pk in ids))


_BODY = {"message": "wait", "on_full": "queue"}


def _seconds(begin: Callable[[], object], done: Callable[[], bool]) -> float:
    began = time.perf_counter()
    begin()
    until(done)
    return time.perf_counter() - began
