"""One chaos run: a fleet under load, faults by a schedule, rest, and everybody's books compared."""

import random
import time
from collections import Counter
from pathlib import Path

import redis

from tests import invariants, seen
from tests.agents.server import AgentServer
from tests.chaos.agents import ChaosAgent, make_fleet
from tests.chaos.course import Say, follow
from tests.chaos.ground import CALM_SECONDS, Ground
from tests.chaos.lines import LineWatch
from tests.chaos.load import Load, Task
from tests.chaos.plan import Plan
from tests.chaos.report import Report, figures
from tests.chaos.schedule import WORKER_KINDS, Fault
from tests.chaos.watch import SlotWatch, as_id, wait_while_nobody_idles
from tests.invariants import Violation
from tests.waiting import until

#: From the last fault to the end of the last task. A run whose worker was lost is stopped within a lease and some passes.
REST_SECONDS = 120.0
#: What repair may need before the line is expected to move without a pause.
MEND_SECONDS = 20.0
#: Codes of a failure that a fault excuses; nothing else may fail.
EXCUSED = {"worker_lost", "lease_lost"}


class HonestServer(AgentServer):
    """Says that a task has ended when its ledger says so too."""

    def terminate(self, execution_id: str) -> int:
        """See `AgentServer`."""
        status = super().terminate(execution_id)
        mine = [call for call in self.calls if call.execution_id == execution_id]
        if status == 200:
            until(lambda: all(call.ended for call in mine))
        return status


def run(plan: Plan, directory: Path, *, say: Say = print) -> Report:
    """Run it; raises `Violation` where an invariant broke, and keeps the logs below `directory`."""
    faults = plan.faults()
    say(f"seed {plan.seed}: {len(faults)} faults in {plan.seconds:.0f} s on {'PostgreSQL' if plan.postgres else 'SQLite'}")
    ground = Ground(directory, postgres=plan.postgres, workers=plan.workers, webs=plan.webs)
    try:
        with HonestServer() as server:
            return _run(plan, faults, ground=ground, server=server, directory=directory, say=say)
    finally:
        ground.close()


def _run(plan: Plan, faults: tuple[Fault, ...], *, ground: Ground, server: AgentServer, directory: Path, say: Say) -> Report:
    stack = ground.stack
    fleet = make_fleet(stack, server=server, directory=directory, count=plan.agents, slots=plan.slots)
    load = Load(
        urls=stack.urls, key=stack.superuser_key, agents=fleet, seed=plan.seed, rate=plan.rate, seconds_each=plan.seconds_each,
        clients=plan.clients,
    )  # fmt: skip
    watch = SlotWatch(stack)
    lines = LineWatch(stack, fleet=fleet, postgres=plan.postgres)
    watch.start()
    lines.start()
    load.start()
    started = time.monotonic()
    course = follow(faults, ground=ground, server=server, seconds=plan.whole_seconds, say=say)
    say(f"{time.monotonic() - started:7.1f} s  no more faults; {_unsettled(ground)} executions to go")
    ground.calm()
    say(f"{time.monotonic() - started:7.1f} s  everything runs and answers")
    load.stop()
    say(f"{time.monotonic() - started:7.1f} s  every client is answered")
    names = [agent.name for agent in fleet]

    _come_to_rest(ground, names)
    say(f"{time.monotonic() - started:7.1f} s  at rest; every slot is used once more")
    _show_every_slot_free(ground, fleet, server=server, load=load)
    watch.end()
    lines.end()
    course.wait()
    problems = _problems(ground, fleet, load=load, faults=faults, lines=lines)
    report = figures(plan=plan, course=course, ground=ground, fleet=fleet, load=load, held_until=watch.held_until, problems=problems)
    say(report.line())
    if problems:
        raise Violation("\n".join([f"seed {plan.seed}", *problems]))
    return report


def _come_to_rest(ground: Ground, names: list[str]) -> None:
    stack = ground.stack

    def rests() -> bool:
        return not _unsettled(ground) and not seen.holders_of(stack.redis)

    patience = time.monotonic() + MEND_SECONDS
    until(lambda: rests() or time.monotonic() > patience, REST_SECONDS)
    wait_while_nobody_idles(rests, stack=stack, names=names, seconds=REST_SECONDS)


def _unsettled(ground: Ground) -> int:
    where = "status IN ('queued', 'running') OR slot_token IS NOT NULL"
    return ground.stack.sql(f"SELECT count(*) AS n FROM backlog_execution WHERE {where}")[0]["n"]


def _show_every_slot_free(ground: Ground, fleet: list[ChaosAgent], *, server: AgentServer, load: Load) -> None:
    """Fill every agent to its limit and one more: no slot may have leaked, and rows and holders must be the same."""
    stack, caller = ground.stack, load.caller(random.Random(0))
    for agent in fleet:
        for number in range(agent.limit + 1):
            task = Task(agent=agent.name, message=f"hang {load.mark}-{agent.name}-{number}", sync=False, key=None, body={})
            answer = caller.once("POST", f"/api/agents/{agent.name}/task", json={"message": task.message, "async_mode": True})
            assert answer is not None, "no answer at rest"
            assert answer.status_code == 202, answer.text
            task.execution_id = answer.json()["execution_id"]
            load.notes.add(task)
    slots = sum(agent.limit for agent in fleet)
    begun = "SELECT count(*) AS n FROM backlog_execution WHERE status = 'running' AND started_at IS NOT NULL"
    until(lambda: stack.sql(begun)[0]["n"] == slots, CALM_SECONDS)
    seen.check_rest(stack.sql, stack.redis, names=[agent.name for agent in fleet])
    server.let_go()
    for agent in fleet:
        agent.books.let_go()
    until(lambda: not _unsettled(ground) and not seen.holders_of(stack.redis), CALM_SECONDS)
    caller.close()


# -- The books ---------------------------------------------------------------------------------------------------------


def _problems(ground: Ground, fleet: list[ChaosAgent], *, load: Load, faults: tuple[Fault, ...], lines: LineWatch) -> list[str]:
    """Whatever is not as it must be."""
    found = [*load.notes.wrong[:20]]
    try:
        lines.check()
    except Violation as violation:
        found.append(str(violation))
    for check in (_check_invariants, _check_clients, _check_failures, _check_store):
        try:
            check(ground, fleet, load, faults)
        except Violation as violation:
            found.append(str(violation))
    return found


def _check_invariants(ground: Ground, fleet: list[ChaosAgent], load: Load, _faults: tuple[Fault, ...]) -> None:
    begun: Counter[str] = sum((agent.books.begun() for agent in fleet), Counter())
    rows = seen.rows_of(ground.stack.sql, [agent.name for agent in fleet])
    invariants.check_peak({agent.name: (agent.books.peak(), max(agent.limits)) for agent in fleet})
    invariants.check_ended(rows=rows, accepted=[str(task.execution_id) for task in load.notes.accepted], begun=begun)


def _check_clients(ground: Ground, _fleet: list[ChaosAgent], load: Load, _faults: tuple[Fault, ...]) -> None:
    """Each task has at most one row, refused ones none; what a client was told of an end is what the row says."""
    rows = ground.stack.sql("SELECT id, message, status FROM backlog_execution")
    by_message: dict[str, list[str]] = {}
    status = {}
    for row in rows:
        by_message.setdefault(row["message"], []).append(as_id(row["id"]))
        status[as_id(row["id"])] = row["status"]
    for task in load.notes.tasks:
        mine = by_message.get(task.message, [])
        if len(mine) > 1:
            raise Violation(f"TWICE a row of {task}: {mine}")
        if task.traceless and mine:
            raise Violation(f"GHOST row {mine} of a refused {task}")
        if task.execution_id and task.execution_id not in mine:
            raise Violation(f"LOST {task}: {mine}")
        ended = status.get(task.execution_id or "", "")
        if task.told and task.told != ended:
            raise Violation(f"CHANGED after it was told: {task} is {ended}")
        if task.cancel != "unknown" and (task.cancel == "cancelled") != (ended == "cancelled"):
            raise Violation(f"CANCEL not kept, or nobody's: {task} is {ended}")


def _check_failures(ground: Ground, _fleet: list[ChaosAgent], _load: Load, faults: tuple[Fault, ...]) -> None:
    """Runs fail only for the faults of their own worker."""
    excused = EXCUSED if {fault.kind for fault in faults} & WORKER_KINDS else set()
    failed = ground.stack.sql("SELECT id, error_code, error, started_at, completed_at FROM backlog_execution WHERE status = 'failed'")
    if wrong := [row for row in failed if row["error_code"] not in excused]:
        raise Violation(f"FAILED for no fault of its own: {len(wrong)} of {len(failed)}: {wrong[:5]}")


def _check_store(ground: Ground, _fleet: list[ChaosAgent], _load: Load, _faults: tuple[Fault, ...]) -> None:
    """Nothing is left in the gate, and no key that nobody will remove."""
    store: redis.Redis = ground.stack.redis
    left = [key.decode() for key in store.scan_iter(match="agent:*") if not key.startswith((b"agent:versions", b"agent:epoch"))]
    if kept := [key for key in left if store.ttl(key) == -1 or key.startswith(("agent:slots:", "agent:holders:"))]:
        raise Violation(f"LEAKED keys: {kept[:10]}")
