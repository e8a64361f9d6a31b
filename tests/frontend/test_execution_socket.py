"""`/ws/executions/{id}/`, in a real uvicorn, seen by real websocket clients."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import redis
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.utils import timezone
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from backlog.models import Execution, ExecutionEvent, Status
from capacity.manager import CapacityManager
from core import events
from core.ids import new_id, new_token
from fleet import shares
from fleet.models import Agent, Share
from fleet.principals import Principal
from fleet.services import create_key, revoke_key
from fleet.tokens import issue
from runtime.events import ExecutionFinished, ExecutionStarted
from runtime.services.event_log import EventLog
from tests.waiting import now
from tests.web import WebProcess, database_url

#: With the flows, for the time that real servers take to start.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.flows]


@pytest.fixture(scope="module")
def web(store_server: str, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    with WebProcess(directory=tmp_path_factory.mktemp("web"), DATABASE_URL=database_url()) as process:
        yield process


@pytest.fixture(autouse=True)
def gate(valkey: redis.Redis) -> None:
    CapacityManager().refill()


@pytest.fixture
def run(agent: Agent) -> Execution:
    """An execution at work."""
    return made(agent)


def made(agent: Agent, status: str = Status.RUNNING, **columns: Any) -> Execution:
    values: dict[str, Any] = {"message": "hello", "timeout_seconds": 60, "status": status} | columns
    if status == Status.RUNNING:
        values |= {"slot_token": new_token(), "slot_number": 1, "started_at": timezone.now()}
    return Execution.objects.create(agent=agent, agent_name=agent.name, **values)


def say(row: Execution, *numbers: int) -> None:
    ExecutionEvent.objects.bulk_create([ExecutionEvent(execution=row, seq=n, type="text", data={"text": f"line {n}"}) for n in numbers])


def end(row: Execution, status: str = Status.SUCCESS, *, told: bool = True) -> None:
    Execution.objects.filter(pk=row.pk).update(status=status, slot_token=None, completed_at=timezone.now())
    if told:
        events.publish(ExecutionFinished(execution_id=row.pk, agent=row.agent_name))


def opened(web: WebProcess, row: Execution | None, user: User | None = None, *, query: str = "", **options: Any) -> ClientConnection:
    headers = {}
    if user is not None:
        client = Client()
        client.force_login(user)
        headers = {"Cookie": f"sessionid={client.cookies['sessionid'].value}"}
    path = f"/ws/executions/{row.pk if row else new_id()}/{query}"
    options = {"origin": web.url, "compression": None, "proxy": None} | options
    return connect(f"ws://127.0.0.1:{web.port}{path}", additional_headers=headers, **options)


def frames(socket: ClientConnection, seconds: float = 20) -> Iterator[dict[str, Any]]:
    """What it says until it closes."""
    deadline = now() + seconds
    while True:
        try:
            yield json.loads(socket.recv(timeout=max(0.0, deadline - now())))
        except ConnectionClosed:
            return


def heard(socket: ClientConnection, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first frame that is as wanted; others pass by."""
    return next(frame for frame in frames(socket) if wanted(frame))


def entries(socket: ClientConnection, count: int) -> list[int]:
    """The numbers of the next entries, at least so many."""
    numbers: list[int] = []
    while len(numbers) < count:
        numbers += [entry["seq"] for entry in heard(socket, lambda frame: frame["type"] == "entries")["entries"]]
    return numbers


def close_code(socket: ClientConnection) -> int:
    with socket:
        for _ in frames(socket):
            pass
        assert socket.close_code is not None
        return socket.close_code


def ticket(web: WebProcess, bearer: str) -> str:
    answer = httpx.post(web.url + "/api/ws-ticket", headers={"Authorization": f"Bearer {bearer}"})
    return f"?ticket={answer.json()['ticket']}"


# -- Frames ----------------------------------------------------------------------------------------------------------
def test_what_is_logged_comes_first_then_its_state_then_all_that_follows_to_its_end(web, owner, run):
    say(run, 1, 2, 3)
    with opened(web, run, owner) as socket:
        told = frames(socket)
        first = next(told)
        assert (first["type"], [entry["seq"] for entry in first["entries"]]) == ("entries", [1, 2, 3])
        assert first["entries"][0] | {"at": ""} == {"seq": 1, "type": "text", "data": {"text": "line 1"}, "at": ""}
        state = next(told)
        assert (state["type"], state["execution"]["status"], state["execution"]["slot_number"]) == ("execution", "running", 1)
        assert not state["execution"].keys() & {"message", "response", "error", "metadata"}
        say(run, 4)
        assert entries(socket, 1) == [4]
        say(run, 5)
        end(run)
        rest = list(told)
        assert [frame["type"] for frame in rest] == ["entries", "execution", "end"]
        assert rest[1]["execution"]["status"] == "success"
        assert socket.close_code == 1000


def test_one_that_has_ended_is_told_whole_or_from_where_the_reader_was(web, owner, run):
    say(run, *range(1, 451))
    end(run, told=False)
    for after in (0, 449, 450, 99_999):
        with opened(web, run, owner, query=f"?after={after}") as socket:
            told = list(frames(socket))
            assert [entry["seq"] for frame in told for entry in frame.get("entries", [])] == list(range(after + 1, 451))
            assert [frame["type"] for frame in told if frame["type"] != "entries"] == ["execution", "end"]
            assert socket.close_code == 1000


def test_large_entries_come_in_frames_of_their_own(web, owner, run):
    rows = [ExecutionEvent(execution=run, seq=number, type="text", data={"text": "x" * 100_000}) for number in range(1, 7)]
    ExecutionEvent.objects.bulk_create(rows)
    end(run)
    with opened(web, run, owner) as socket:
        told = [frame["entries"] for frame in frames(socket) if frame["type"] == "entries"]
    assert [len(page) for page in told] == [2, 2, 2]


def test_no_entry_is_missed_told_twice_or_out_of_order_while_many_are_written(web, owner, run):
    """Three readers at once, one of whom goes away and comes back every few frames."""
    written = EventLog(run.pk)
    total = 1500

    def write() -> None:
        try:
            for number in range(1, total + 1):
                written.emit("text", {"text": str(number)})
                if number % 37 == 0:
                    written.flush()
            while written.flush():
                pass
            end(run)
        finally:
            connections.close_all()

    def read() -> list[int]:
        with opened(web, run, owner) as socket:
            return [entry["seq"] for frame in frames(socket, 60) for entry in frame.get("entries", [])]

    def read_in_pieces() -> list[int]:
        numbers: list[int] = []
        ended = False
        while not ended:
            with opened(web, run, owner, query=f"?after={numbers[-1] if numbers else 0}") as socket:
                for count, frame in enumerate(frames(socket, 60)):
                    numbers += [entry["seq"] for entry in frame.get("entries", [])]
                    ended = frame["type"] == "end"
                    if count == 1:
                        break
        connections.close_all()
        return numbers

    def tidily(work: Callable[[], list[int]]) -> list[int]:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(tidily, work) for work in (read, read, read_in_pieces)]
        writer = threading.Thread(target=write)
        writer.start()
        for reader in readers:
            assert reader.result() == list(range(1, total + 1))
        writer.join()


def test_state_is_told_as_it_changes(web, owner, make_agent):
    paused = make_agent(paused=True)
    row = made(paused, Status.QUEUED)
    with opened(web, row, owner) as socket:
        state = heard(socket, lambda frame: frame["type"] == "execution")["execution"]
        assert (state["status"], state["queue_position"], state["waiting_for"]) == ("queued", 1, "paused")
        begun = {"status": Status.RUNNING, "slot_token": new_token(), "slot_number": 2, "started_at": timezone.now()}
        Execution.objects.filter(pk=row.pk).update(**begun)
        events.publish(ExecutionStarted(execution_id=row.pk, agent=paused.name))
        state = heard(socket, lambda frame: frame["type"] == "execution")["execution"]
        assert (state["status"], state["slot_number"]) == ("running", 2)
        Execution.objects.filter(pk=row.pk).update(cancel_requested_at=timezone.now())
        assert heard(socket, lambda frame: frame["type"] == "execution")["execution"]["cancel_requested_at"]
        end(row, Status.CANCELLED, told=False)
        assert [frame["type"] for frame in frames(socket) if frame["type"] != "heartbeat"] == ["execution", "end"]


def test_silence_is_broken_by_heartbeats(web, owner, run):
    with opened(web, run, owner) as socket:
        assert heard(socket, lambda frame: frame["type"] != "execution") == {"type": "heartbeat"}


def test_one_that_is_deleted_meanwhile_is_4404(web, owner, run):
    with opened(web, run, owner) as socket:
        heard(socket, lambda frame: frame["type"] == "execution")
        run.delete()
        assert close_code(socket) == 4404


# -- Who -------------------------------------------------------------------------------------------------------------
def test_who_may_not_read_it_is_told_why_by_the_code(web, owner, stranger, run):
    end(run)
    cases = {
        "no credentials": (opened(web, run), 4401),
        "dead ticket": (opened(web, run, query="?ticket=never-issued"), 4401),
        "a page of elsewhere": (opened(web, run, owner, origin="https://evil.example"), 4403),
        "not theirs": (opened(web, run, stranger), 4403),
        "not there": (opened(web, None, owner), 4404),
        "its reader": (opened(web, run, owner), 1000),
    }
    assert {name: close_code(socket) for name, (socket, _) in cases.items()} == {name: code for name, (_, code) in cases.items()}


def test_an_execution_of_a_deleted_agent_is_still_its_owners_to_read(web, owner, run):
    end(run)
    Agent.objects.filter(pk=run.agent_id).update(deleted_at=timezone.now())
    assert close_code(opened(web, run, owner)) == 1000


@pytest.mark.parametrize("after", ["-1", "x", "", "1e3", "9" * 20, "%00", "٣"])
def test_an_after_that_is_no_number_is_a_bad_frame(web, owner, run, after):
    assert close_code(opened(web, run, owner, query=f"?after={after}")) == 4400


@pytest.mark.parametrize("said", ["", '{"type":"resync"}', b"\0"])
def test_anything_said_is_a_bad_frame(web, owner, run, said):
    with opened(web, run, owner) as socket:
        socket.send(said)
        assert close_code(socket) == 4400


def test_a_path_that_names_no_execution_is_4404(web, owner):
    assert close_code(connect(f"ws://127.0.0.1:{web.port}/ws/executions/7/", origin=web.url, proxy=None)) == 4404


def test_a_ticket_works_once_from_any_origin(web, owner, run):
    good = ticket(web, issue(owner).access)
    with opened(web, run, query=good, origin="https://elsewhere.example") as socket:
        assert heard(socket, lambda frame: frame["type"] == "execution")["execution"]["id"] == str(run.pk)
    assert close_code(opened(web, run, query=good)) == 4401


def test_rights_that_end_end_the_socket_at_once(web, owner, stranger, run):
    Share.objects.create(agent=run.agent, user=stranger)
    made_key = create_key(owner=owner, scope="user", name="screen")
    with opened(web, run, stranger) as guest, opened(web, run, query=ticket(web, made_key.key)) as keyed, opened(web, run, owner) as mine:
        for socket in (guest, keyed, mine):
            heard(socket, lambda frame: frame["type"] == "execution")
        shares.withdraw_share(principal=Principal.of_user(owner), agent=run.agent, username="sten")
        assert close_code(guest) == 4403
        revoke_key(principal=Principal.of_user(owner), key=made_key.row)
        assert close_code(keyed) == 4401
        say(run, 1)
        assert entries(mine, 1) == [1]


# -- Many ------------------------------------------------------------------------------------------------------------
def test_many_watch_many_with_few_connections_to_the_database(web, owner, make_agent):
    agent = make_agent(limit=10)
    rows = [made(agent) for _ in range(10)]
    with ExitStack() as stack:
        sockets = [stack.enter_context(opened(web, row, owner)) for row in rows for _ in range(6)]
        for socket in sockets:
            heard(socket, lambda frame: frame["type"] == "execution")
        for row in rows:
            say(row, 1, 2)
        assert [entries(socket, 2) for socket in sockets] == [[1, 2]] * len(sockets)
        # Neither a thread nor a connection for each.
        assert web.process.num_threads() < 40
        for row in rows:
            end(row)
        assert [list(frames(socket))[-1] for socket in sockets] == [{"type": "end"}] * len(sockets)
