"""`/ws/capacity/`, in a real uvicorn, seen by real websocket clients."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from capacity import slots
from capacity.leases import Lease
from capacity.manager import CapacityManager
from core.ids import new_id, new_token
from fleet import shares
from fleet.models import Agent, Share
from fleet.principals import Principal
from fleet.services import create_key, revoke_key
from fleet.tokens import issue
from tests.stores import OwnStore
from tests.waiting import now, until
from tests.web import WebProcess, database_url

#: With the flows, for the time that real servers take to start and restart.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.flows]


@pytest.fixture(scope="module")
def web(store_server: str, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    with WebProcess(directory=tmp_path_factory.mktemp("web"), DATABASE_URL=database_url()) as process:
        yield process


@pytest.fixture(autouse=True)
def gate(valkey: redis.Redis) -> None:
    CapacityManager().refill()


def cookie(user: User) -> str:
    client = Client()
    client.force_login(user)
    return f"sessionid={client.cookies['sessionid'].value}"


def opened(web: WebProcess, user: User | None = None, path: str = "/ws/capacity/", **options: Any) -> ClientConnection:
    options = {"origin": web.url, "compression": None, "proxy": None} | options
    headers = {"Cookie": cookie(user)} if user else {}
    return connect(f"ws://127.0.0.1:{web.port}{path}", additional_headers=headers, **options)


@contextmanager
def watching(web: WebProcess, user: User, path: str = "/ws/capacity/") -> Iterator[tuple[ClientConnection, dict[str, Any]]]:
    with opened(web, user, path) as socket:
        first = frame(socket)
        assert first["type"] == "snapshot"
        yield socket, first["agents"]


def frame(socket: ClientConnection, seconds: float = 10) -> dict[str, Any]:
    return json.loads(socket.recv(timeout=seconds))


def delta_of(socket: ClientConnection, name: str, wanted: Callable[[Any], bool]) -> Any:
    """The first value of `name` in a delta that is as wanted; heartbeats and others pass by."""
    deadline = now() + 10
    while True:
        heard = frame(socket, max(0.0, deadline - now()))
        if heard["type"] == "delta" and name in heard["agents"] and wanted(heard["agents"][name]):
            return heard["agents"][name]


def close_code(socket: ClientConnection) -> int:
    with socket:
        closed = _closing(socket)
    assert closed.rcvd is not None
    return closed.rcvd.code


def _closing(socket: ClientConnection) -> ConnectionClosed:
    try:
        while True:
            socket.recv(timeout=10)
    except ConnectionClosed as closed:
        return closed


def take(agent: Agent, limit: int = 3) -> Lease:
    lease = Lease(agent=agent.name, execution_id=new_id(), token=new_token(), timeout_seconds=60)
    assert slots.acquire(lease=lease, limit=limit, fleet_limit=None, preview="p").outcome == slots.TakeOutcome.ACQUIRED
    return lease


def ticket(web: WebProcess, user: User) -> str:
    answer = httpx.post(web.url + "/api/ws-ticket", headers={"Authorization": f"Bearer {issue(user).access}"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["expires_in"] == 30
    return answer.json()["ticket"]


# -- Frames ----------------------------------------------------------------------------------------------------------
def test_reader_gets_a_snapshot_of_their_agents_and_then_whole_values_of_what_changed(web, owner, stranger, make_agent):
    mine, shared, foreign = make_agent(), make_agent(owner=stranger), make_agent(owner=stranger)
    Share.objects.create(agent=shared, user=owner)
    with opened(web, owner) as socket:
        first = frame(socket)
        assert first["server_time"].endswith("Z")
        assert first["agents"].keys() == {mine.name, shared.name}
        before = first["agents"][mine.name]
        assert before | {"version": 0} == {"max": 3, "active": 0, "queued": 0, "paused": False, "version": 0}
        lease = take(mine)
        take(foreign)
        taken = delta_of(socket, mine.name, lambda value: value["active"] == 1)
        assert taken["version"] > before["version"]
        slots.release(lease=lease)
        assert delta_of(socket, mine.name, lambda value: value["active"] == 0)["version"] > taken["version"]


def test_meter_moves_without_a_request(web, owner, agent, record_property):
    with watching(web, owner) as (socket, _):
        begun = now()
        take(agent)
        delta_of(socket, agent.name, lambda value: value["active"] == 1)
        record_property("lag_seconds", round(now() - begun, 3))


def test_many_changes_at_once_become_few_frames_that_end_right(web, owner, make_agent):
    agent = make_agent(limit=10)
    with watching(web, owner) as (socket, _):
        for lease in [take(agent, 10) for _ in range(9)]:
            for _ in range(10):
                slots.release(lease=lease)
                assert slots.acquire(lease=lease, limit=10, fleet_limit=None, preview="p").number
        slots.release(lease=take(agent, 10))
        final = slots.states([agent.name])[agent.name].version
        frames = []
        while not frames or frames[-1]["version"] != final:
            frames.append(frame(socket).get("agents", {}).get(agent.name) or frames[-1])
        assert frames[-1]["active"] == 9
        assert len(frames) < 50
        versions = [value["version"] for value in frames]
        assert versions == sorted(set(versions))


def test_resync_is_answered_with_a_snapshot(web, owner, agent):
    with watching(web, owner) as (socket, held):
        socket.send('{"type": "resync"}')
        assert frame(socket)["agents"] == held


@pytest.mark.parametrize("said", ["", "x", "[" * 60_000, '{"type":"other"}', '{"type":"resync","agents":[]}', b'{"type":"resync"}'])
def test_anything_else_said_is_a_bad_frame(web, owner, agent, said):
    with watching(web, owner) as (socket, _):
        socket.send(said)
        assert close_code(socket) == 4400


def test_frame_over_64_kib_is_refused_by_the_server(web, owner, agent):
    with watching(web, owner) as (socket, _):
        socket.send("x" * (64 * 1024 + 1))
        assert close_code(socket) == 1009


def test_agent_named_in_the_address_is_all_that_is_told(web, owner, make_agent):
    one, two, three = make_agent(), make_agent(), make_agent()
    with watching(web, owner, f"/ws/capacity/?agent={one.name}&agent={two.name}") as (socket, held):
        assert held.keys() == {one.name, two.name}
        take(three)
        take(two)
        assert frame(socket)["agents"].keys() == {two.name}


def test_silence_is_broken_by_heartbeats(web, owner, agent):
    with watching(web, owner) as (socket, _):
        assert frame(socket, 11) == {"type": "heartbeat"}


# -- Who -------------------------------------------------------------------------------------------------------------
def test_no_credentials_or_dead_ones_are_4401(web, owner, agent):
    assert close_code(opened(web)) == 4401
    headers = {"Cookie": "sessionid=neverwas"}
    assert close_code(opened(web, path="/ws/capacity/?ticket=never-issued")) == 4401
    assert close_code(connect(f"ws://127.0.0.1:{web.port}/ws/capacity/", origin=web.url, additional_headers=headers, proxy=None)) == 4401


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null", None])
def test_session_is_not_taken_from_a_page_of_elsewhere(web, owner, agent, origin):
    assert close_code(opened(web, owner, origin=origin)) == 4403


def test_ticket_works_once_from_any_origin(web, owner, agent, valkey):
    good = ticket(web, owner)
    assert good.encode() not in b"".join(valkey.keys("*"))
    assert [valkey.ttl(key) for key in valkey.keys("trinity:ws-ticket:*")] == [pytest.approx(30, abs=3)]
    with opened(web, path=f"/ws/capacity/?ticket={good}", origin="https://elsewhere.example") as socket:
        assert frame(socket)["agents"].keys() == {agent.name}
    assert close_code(opened(web, path=f"/ws/capacity/?ticket={good}")) == 4401


def test_ticket_of_an_account_closed_meanwhile_is_worthless(web, owner, agent):
    good = ticket(web, owner)
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert close_code(opened(web, path=f"/ws/capacity/?ticket={good}")) == 4401


def test_ticket_needs_credentials_and_takes_no_fields(web, api, owner):
    assert httpx.post(web.url + "/api/ws-ticket/").status_code == 401
    assert api(owner).post("/api/ws-ticket/", {"for": "ever"}, format="json").status_code == 400


def test_agent_that_is_not_the_readers_is_4403_and_one_that_is_not_there_4404(web, owner, stranger, make_agent):
    foreign = make_agent(owner=stranger)
    assert close_code(opened(web, owner, f"/ws/capacity/?agent={foreign.name}")) == 4403
    assert close_code(opened(web, owner, "/ws/capacity/?agent=nowhere")) == 4404
    assert close_code(opened(web, owner, "/ws/capacity/?agent=%00")) == 4404


def test_unknown_path_is_accepted_and_closed_with_4404(web, owner):
    assert close_code(opened(web, owner, "/ws/other/")) == 4404


def test_reader_who_joins_while_meters_move_gets_the_snapshot_first(web, owner, agent):
    enough = threading.Event()
    take(agent)

    def move() -> None:
        while not enough.wait(0.003):
            slots.step_version([agent.name])

    with ThreadPoolExecutor() as pool:
        moving = pool.submit(move)
        try:
            for _ in range(20):
                with watching(web, owner) as (_, held):
                    assert held.keys() == {agent.name}
        finally:
            enough.set()
        moving.result()


# -- What no hint tells ----------------------------------------------------------------------------------------------
def test_new_agent_appears_and_a_deleted_one_is_null(web, owner, agent, make_agent):
    with watching(web, owner) as (socket, _):
        new = make_agent()
        while new.name not in (heard := frame(socket, 10)).get("agents", {}):
            pass
        assert heard["type"] == "snapshot"
        Agent.objects.filter(pk=agent.pk).update(deleted_at=new.created_at)
        assert delta_of(socket, agent.name, lambda value: True) is None


def test_agent_whose_share_was_withdrawn_is_null_and_told_of_no_more(web, owner, stranger, make_agent):
    mine, shared = make_agent(), make_agent(owner=stranger)
    share = Share.objects.create(agent=shared, user=owner)
    with watching(web, owner) as (socket, held):
        assert held.keys() == {mine.name, shared.name}
        share.delete()
        make_agent(owner=stranger)  # any coming or going makes it look at all rights at once, not after a minute
        assert delta_of(socket, shared.name, lambda value: True) is None
        take(shared)
        take(mine)
        heard: list[str] = []
        while mine.name not in heard:
            heard += frame(socket).get("agents", {})
        assert shared.name not in heard


def test_sharing_and_handing_on_are_told_at_once(web, owner, stranger, make_agent, api):
    mine, given = make_agent(), make_agent()
    with watching(web, stranger) as (guest, held), watching(web, owner) as (host, _):
        assert held == {}
        shares.share_agent(principal=Principal.of_user(owner), agent=mine, username="sten")
        while mine.name not in (snapshot := frame(guest)).get("agents", {}):
            pass
        assert snapshot["agents"][mine.name]["max"] == 3
        shares.withdraw_share(principal=Principal.of_user(owner), agent=mine, username="sten")
        assert delta_of(guest, mine.name, lambda value: True) is None
        assert api(owner).patch(f"/api/agents/{given.name}/", {"owner": "sten"}, format="json").status_code == 200
        while given.name not in frame(guest).get("agents", {}):
            pass
        assert delta_of(host, given.name, lambda value: value is None) is None


def test_socket_of_a_revoked_key_is_closed_at_once(web, owner, agent):
    made = create_key(owner=owner, scope="user", name="screen")
    answer = httpx.post(web.url + "/api/ws-ticket", headers={"Authorization": f"Bearer {made.key}"})
    with opened(web, path=f"/ws/capacity/?ticket={answer.json()['ticket']}") as socket:
        assert frame(socket)["type"] == "snapshot"
        revoke_key(principal=Principal.of_user(owner), key=made.row)
        assert close_code(socket) == 4401


def test_change_without_a_hint_is_found_and_gets_a_version(web, owner, agent):
    with watching(web, owner) as (socket, held):
        Agent.objects.filter(pk=agent.pk).update(paused=True)
        paused = delta_of(socket, agent.name, lambda value: value["paused"])
        assert paused["version"] > held[agent.name]["version"]


# -- Trouble ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[OwnStore]:
    store = OwnStore(tmp_path)
    store.start()
    yield store
    store.kill()


def open_gate(store: OwnStore, name: str, version: int) -> None:
    """What a rebuild leaves of an agent without runs."""
    with store.client() as client:
        client.set("agent:epoch", client.info("server")["run_id"])
        client.hset("agent:versions", name, version)


def test_store_that_is_gone_makes_meters_unknown_and_its_return_makes_them_right(owner, agent, own_store, tmp_path):
    open_gate(own_store, agent.name, 5)
    with (
        WebProcess(directory=tmp_path, DATABASE_URL=database_url(), REDIS_URL=own_store.url) as web,
        watching(web, owner) as (socket, held),
    ):
        assert held[agent.name]["active"] == 0
        own_store.kill()
        unknown = frame(socket)
        assert (unknown["type"], unknown["agents"][agent.name]["active"]) == ("snapshot", None)
        own_store.start()
        open_gate(own_store, agent.name, 6)
        while (again := frame(socket))["type"] != "snapshot":
            pass
        assert again["agents"][agent.name] == {"max": 3, "active": 0, "queued": 0, "paused": False, "version": 6}
        # It listens again.
        with own_store.client() as client:
            until(lambda: dict(client.pubsub_numsub("agent:hints"))[b"agent:hints"] == 1)
            Agent.objects.filter(pk=agent.pk).update(max_parallel_tasks=5)
            client.hset("agent:versions", agent.name, 7)
            client.publish("agent:hints", f"{agent.name} 7")
        assert delta_of(socket, agent.name, lambda value: value["max"] == 5)["version"] == 7


def test_readyz_names_what_is_missing_and_livez_says_only_that_it_lives(own_store, tmp_path):
    empty = f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    with WebProcess(directory=tmp_path, DATABASE_URL=database_url(), REDIS_URL=own_store.url) as web:
        assert web.get("/readyz").json() == {"status": "ok", "checks": {"database": "ok", "redis": "ok", "migrations": "ok"}}
        own_store.kill()
        ready = web.get("/readyz/", timeout=20)
        assert (ready.status_code, ready.json()["checks"]) == (503, {"database": "ok", "redis": "unreachable", "migrations": "ok"})
        assert (web.get("/livez").status_code, web.get("/livez/").status_code) == (200, 200)
    own_store.start()
    with WebProcess(directory=tmp_path, DATABASE_URL=empty, REDIS_URL=own_store.url) as web:
        ready = web.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["redis"]) == (503, "ok")
        assert ready.json()["checks"]["migrations"].endswith(" not applied")


def test_sockets_are_closed_with_1012_when_the_server_restarts(owner, agent, valkey, tmp_path):
    with WebProcess(directory=tmp_path, DATABASE_URL=database_url()) as web, ExitStack() as stack:
        sockets = [stack.enter_context(opened(web, owner)) for _ in range(5)]
        assert {frame(socket)["type"] for socket in sockets} == {"snapshot"}
        # Less than the ten seconds that uvicorn gives connections which don't close.
        assert web.stop() < 8
        assert {close_code(socket) for socket in sockets} == {1012}
        assert "Traceback" not in web.log
