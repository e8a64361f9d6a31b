"""Careful clients: they submit, repeat themselves by their idempotency key until they have an answer, and remember every answer.

What a client was told (202, or a result) is what must not be lost; what it was refused must have left no row.
"""

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.agents import ChaosAgent

#: How long a client repeats itself. It outlasts every fault of a schedule.
PATIENCE_SECONDS = 90.0
SYNC_SECONDS = 60.0
ASYNC_SECONDS = 8.0
#: Refusals that say: there is no row of it.
TRACELESS = frozenset({"at_capacity", "backlog_full", "fleet_at_capacity", "slots_unavailable", "agent_paused"})


@dataclass(kw_only=True)
class Task:
    """One task as its client knows it."""

    agent: str
    message: str
    sync: bool
    key: str | None
    body: dict[str, Any]
    execution_id: str | None = None
    #: The last answer's status and code; 0 where there was none.
    status: int = 0
    code: str = ""
    attempts: int = 0
    #: Whether an attempt got no answer: then there may be a row though nobody was told.
    broken: bool = False
    #: How a sync call ended, by its answer: the execution's status.
    told: str = ""
    cancel: str = ""
    sent_at: float = 0.0
    answered_at: float = 0.0

    @property
    def traceless(self) -> bool:
        """Whether it was refused, and no row of it may exist."""
        return self.execution_id is None and not self.broken and self.code in TRACELESS


@dataclass
class Notes:
    """What all clients wrote down."""

    tasks: list[Task] = field(default_factory=list)
    #: Answers that no fault excuses.
    wrong: list[str] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, task: Task) -> None:
        """Remember a task whose fate its client knows as far as it ever will."""
        with self._lock:
            self.tasks.append(task)

    def answered(self, answer: httpx.Response | None, what: str) -> None:
        """Count an answer (None: none came); a wrong one is kept in full."""
        with self._lock:
            self.answers[0 if answer is None else answer.status_code] += 1
            if answer is not None and _is_wrong(answer):
                self.wrong.append(f"{what}: {answer.status_code} {answer.text[:300]}")

    @property
    def accepted(self) -> list[Task]:
        """Every task that some client was told of."""
        return [task for task in self.tasks if task.execution_id is not None]


def _is_wrong(answer: httpx.Response) -> bool:
    """A server error that isn't the clean 503, or the end of the very execution that was asked for."""
    if answer.status_code < 500 or answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return answer.status_code in (400, 401, 403, 404, 405, 413, 415, 422)
    return "execution_id" not in answer.text


class Load:
    """The clients, each a thread; `stop` lets each finish what it is at."""

    def __init__(
        self,
        *,
        urls: Sequence[str],
        key: str,
        agents: Sequence[ChaosAgent],
        seed: int,
        rate: float,
        seconds_each: float,
        clients: int,
    ) -> None:
        """`rate` tasks a second in all, of `seconds_each` on average, by `clients` threads and as many again that wait for results."""
        self.notes = Notes()
        self.over = threading.Event()
        self.agents = agents
        self.mark = uuid.uuid4().hex[:6]
        self.seconds_each = seconds_each
        self._connect = lambda dice: Caller(urls=urls, key=key, notes=self.notes, dice=dice)
        share = rate / (clients * 1.25)
        patient = [Client(self, seed=seed * 1000 + number, rate=share, sync=False) for number in range(clients)]
        held = [Client(self, seed=seed * 1000 + 500 + number, rate=share / 4, sync=True) for number in range(clients)]
        self._threads: list[threading.Thread] = [*patient, *held, Steerer(self, seed=seed)]

    def caller(self, dice: random.Random) -> "Caller":
        """A connection of one thread."""
        return self._connect(dice)

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Submit nothing new; returns when every client has its last answer."""
        self.over.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS + SYNC_SECONDS)
            assert not thread.is_alive(), "a client was never answered"


class Caller:
    """Requests to any of the web processes: whoever doesn't answer is left for the next."""

    def __init__(self, *, urls: Sequence[str], key: str, notes: Notes, dice: random.Random) -> None:
        self.notes = notes
        self.dice = dice
        self._clients = [httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, trust_env=False) for url in urls]
        self._at = dice.randrange(len(urls))

    def once(self, method: str, path: str, *, seconds: float = ASYNC_SECONDS, **more: Any) -> httpx.Response | None:
        """The answer, or None when the connection broke or none came in time."""
        answer = None
        try:
            answer = self._clients[self._at].request(method, path, timeout=httpx.Timeout(seconds, connect=2.0), **more)
        except httpx.TransportError:
            self._at = (self._at + 1) % len(self._clients)
        self.notes.answered(answer, f"{method} {path}")
        return answer

    def persist(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        """The first answer that isn't a 503, asked for again and again; only for what may be said twice."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            answer = self.once(method, path, **more)
            if answer is not None and answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return answer
            time.sleep(self.dice.uniform(0.1, 0.6))
        return None

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()


class Client(threading.Thread):
    """Submits one task after the other, at a pace of its own."""

    def __init__(self, load: Load, *, seed: int, rate: float, sync: bool) -> None:
        super().__init__(name=f"client {seed}", daemon=True)
        self._load, self._rate, self._sync, self._seed = load, rate, sync, seed
        self._dice = random.Random(seed)
        self._count = 0

    def run(self) -> None:
        """Until the load is over."""
        self._caller = self._load.caller(self._dice)
        due = time.monotonic()
        while not self._load.over.wait(max(0.0, due - time.monotonic())):
            due = max(due, time.monotonic() - 5.0) + self._dice.expovariate(self._rate)
            self._carry(self._task())
        self._caller.close()

    def _task(self) -> Task:
        self._count += 1
        dice = self._dice
        seconds = min(dice.expovariate(1 / self._load.seconds_each), 5 * self._load.seconds_each)
        message = f"sleep={seconds:.3f} {self._load.mark}-{self._seed}-{self._count}"
        body: dict[str, Any] = {"message": message, "priority": dice.choice([5, 5, 5, dice.randrange(10)])}
        if self._sync:
            body["on_full"] = dice.choice(["queue", "queue", "reject"])
        else:
            body["async_mode"] = True
        key = f"key-{self._load.mark}-{self._seed}-{self._count}" if dice.random() < 0.8 else None
        return Task(agent=dice.choice(self._load.agents).name, message=message, sync=self._sync, key=key, body=body)

    def _carry(self, task: Task) -> None:
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not self._answered(task) and task.key is not None and time.monotonic() < give_up_at:
            time.sleep(self._dice.uniform(0.1, 0.6))
        self._load.notes.add(task)
        if task.execution_id is not None and not self._sync and self._dice.random() < 0.06:
            self._cancel(task)

    def _answered(self, task: Task) -> bool:
        """Whether there is nothing more to ask."""
        task.attempts += 1
        task.sent_at = time.time()
        headers = {} if task.key is None else {"Idempotency-Key": task.key}
        answer = self._caller.once(
            "POST", f"/api/agents/{task.agent}/task", json=task.body, headers=headers, seconds=SYNC_SECONDS if task.sync else ASYNC_SECONDS
        )
        if answer is None:
            task.broken, task.status, task.code = True, 0, ""
            return False
        task.answered_at, task.status = time.time(), answer.status_code
        fields = answer.json()
        task.code = fields.get("code", "")
        task.execution_id = fields.get("execution_id") or (fields.get("id") if answer.status_code == httpx.codes.OK else None)
        if task.sync and task.execution_id is not None:
            task.told = _told(answer.status_code, fields)
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE and task.code not in TRACELESS:
            task.broken = True  # a database that went away while it committed doesn't tell whether it did
        return answer.status_code != httpx.codes.SERVICE_UNAVAILABLE

    def _cancel(self, task: Task) -> None:
        time.sleep(self._dice.choice([0.0, 0.0, self._dice.uniform(0.0, 1.5)]))
        answer = self._caller.persist("POST", f"/api/executions/{task.execution_id}/cancel/")
        task.cancel = "unknown"
        if answer is not None:
            task.cancel = {200: "cancelled", 202: "cancelled", 409: "finished"}.get(answer.status_code, f"?{answer.status_code}")


def _told(status: int, fields: dict[str, Any]) -> str:
    if status == httpx.codes.OK:
        return str(fields["status"])
    if status == httpx.codes.GATEWAY_TIMEOUT and fields.get("code") == "wait_timeout":
        return ""
    return "cancelled" if status == httpx.codes.CONFLICT else "failed"


class Steerer(threading.Thread):
    """An owner who changes limits and pauses, now and then."""

    def __init__(self, load: Load, *, seed: int) -> None:
        super().__init__(name="steerer", daemon=True)
        self._load = load
        self._dice = random.Random(seed * 1000 + 999)

    def run(self) -> None:
        """Until the load is over; then everything is as it was."""
        self._caller = self._load.caller(self._dice)
        steered = [agent for agent in self._load.agents if agent.steered]
        while not self._load.over.wait(self._dice.uniform(0.5, 3.0)) and steered:
            agent = self._dice.choice(steered)
            if self._dice.random() < 0.7:
                self._set_limit(agent, max(1, agent.limit + self._dice.choice([-2, -1, 0, 1, 2])))
            else:
                self._pause(agent)
        self.restore(steered)
        self._caller.close()

    def restore(self, steered: Iterable[ChaosAgent]) -> None:
        """Give each agent its own limit again."""
        for agent in steered:
            self._set_limit(agent, agent.limit)

    def _set_limit(self, agent: ChaosAgent, limit: int) -> None:
        agent.limits.append(limit)
        self._must("PUT", f"/api/agents/{agent.name}/capacity", json={"max_parallel_tasks": limit})

    def _pause(self, agent: ChaosAgent) -> None:
        """Pause it for a moment."""
        agent.pauses += 1
        for verb in ("pause", "resume"):
            self._must("POST", f"/api/agents/{agent.name}/{verb}/")
            self._load.over.wait(self._dice.uniform(0.2, 2.0))

    def _must(self, method: str, path: str, **more: Any) -> None:
        answer = self._caller.persist(method, path, **more)
        if answer is None or not answer.is_success:
            self._load.notes.wrong.append(f"{method} {path}: {'never answered' if answer is None else answer.text[:300]}")
