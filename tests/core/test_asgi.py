"""The bridge and held calls, in a real uvicorn."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import redis

from core.conf import conf
from tests.waiting import now, until
from tests.web import WebProcess

pytestmark = pytest.mark.flows

SERVE = "from core.serve import serve; serve(host='127.0.0.1', port={port}, application='tests.core.web_process:application')"
THREADS = 4


def start(directory: Path, **variables: str) -> WebProcess:
    return WebProcess(directory=directory, argv=["-c", SERVE], TRINITY_WEB_THREADS=str(THREADS), **variables)


@pytest.fixture(scope="module")
def web(store_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    with start(tmp_path_factory.mktemp("web")) as process:
        until(lambda: process.get("/state").json()["listening"])
        yield process


@pytest.fixture
def store(valkey: redis.Redis, web: WebProcess) -> redis.Redis:
    return valkey


@pytest.fixture
def in_thread() -> Iterator[Callable[..., Future[httpx.Response]]]:
    with ThreadPoolExecutor(16) as pool:
        yield pool.submit


def announce(store: redis.Redis, key: str) -> None:
    store.publish("trinity:events", json.dumps({"key": key}))


def finish(store: redis.Redis, key: str) -> None:
    store.set(f"finished:{key}", 1, ex=60)


def held(web: WebProcess, count: int = 1) -> None:
    until(lambda: web.get("/state").json()["held"] == count)


def raw(web: WebProcess, request: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", web.port), timeout=10)
    connection.sendall(request)
    return connection


# -- Requests --------------------------------------------------------------------------------------------------------
def test_django_sees_the_request_as_it_was_sent(web):
    answer = httpx.post(
        web.url + "/echo/gr%C3%BC%C3%9Fe/a%2Fb/%FF?q=%C3%A4&q=2",
        content=b"x" * 70_000,
        headers=[("X-Twice", "1"), ("X-Twice", "2"), ("Cookie", "a=1; b=2"), ("X_Sly", "1"), ("Content-Type", "text/plain")],
    )
    seen = answer.json()
    assert seen["path"] == "/echo/grüße/a/b/%FF"
    assert seen["query"] == {"q": ["ä", "2"]}
    assert seen["body"] == 70_000
    assert seen["cookies"] == {"a": "1", "b": "2"}
    assert seen["meta"]["HTTP_X_TWICE"] == "1,2"
    assert seen["meta"]["CONTENT_TYPE"] == "text/plain"
    assert seen["meta"]["REMOTE_ADDR"] == "127.0.0.1"
    assert seen["meta"]["SERVER_PORT"] == str(web.port)
    assert not [name for name in seen["meta"] if "SLY" in name]
    assert answer.headers.get_list("set-cookie") == ["first=1; Path=/", "second=2; Path=/"]


def test_forwarded_headers_change_nothing_by_themselves(web):
    seen = web.get("/echo", headers={"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}).json()["meta"]
    assert (seen["REMOTE_ADDR"], seen["HTTP_X_FORWARDED_FOR"]) == ("127.0.0.1", "203.0.113.9")


def test_head_has_the_headers_of_get_and_no_body(web):
    answer = httpx.head(web.url + "/echo")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 100


def test_body_in_chunks_reaches_django_whole(web):
    assert httpx.post(web.url + "/echo", content=iter([b"ab", b"cde"])).json()["body"] == 5


@pytest.mark.parametrize("chunked", [False, True])
def test_body_one_byte_too_long_is_a_413_and_the_longest_is_read(web, chunked):
    def post(size: int) -> httpx.Response:
        content = b"x" * size
        return httpx.post(web.url + "/echo", content=iter([content[: size // 2], content[size // 2 :]]) if chunked else content)

    assert post(conf.max_body_bytes).json()["body"] == conf.max_body_bytes
    answer = post(conf.max_body_bytes + 1)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "body_too_large"


def test_a_connection_is_usable_after_a_413(web):
    with httpx.Client() as client:
        assert client.post(web.url + "/echo", content=b"x" * 5_000_000).status_code == 413
        assert client.get(web.url + "/echo").status_code == 200


def test_slow_clients_hold_no_thread(web):
    head = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
    slow = [raw(web, head + b"x" * 10) for _ in range(5 * THREADS)]
    assert web.get("/echo", timeout=20).status_code == 200
    slow[0].sendall(b"x" * 990)
    assert slow[0].recv(65_536).startswith(b"HTTP/1.1 200")
    for connection in slow:
        connection.close()
    assert web.get("/echo", timeout=20).status_code == 200


def test_livez_answers_while_every_thread_is_busy(web, store, in_thread):
    busy = [in_thread(web.get, "/work?seconds=20", timeout=30) for _ in range(THREADS)]
    until(lambda: len([c for c in store.client_list() if c["cmd"] == "blpop"]) == THREADS)
    assert web.get("/livez", timeout=20).json() == {"status": "ok"}
    store.rpush("work", *range(THREADS))
    assert {answer.result().text for answer in busy} == {"done"}


def test_streams_are_sent_whole_and_closed_when_the_client_leaves(web, store):
    assert len(web.get("/stream?megabytes=3").content) == 3 * 1024 * 1024
    assert int(store.get("streams-closed")) == 1
    endless = raw(web, b"GET /stream?megabytes=1000000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert endless.recv(65_536)
    endless.close()
    until(lambda: int(store.get("streams-closed")) == 2)


# -- Held calls ------------------------------------------------------------------------------------------------------
def test_held_call_is_answered_when_its_key_is_announced(web, store, in_thread):
    waiting = in_thread(web.get, "/hold?key=k1", timeout=20)
    held(web)
    announce(store, "another")
    announce(store, "k1")
    answer = waiting.result()
    assert (answer.status_code, answer.json()["timed_out"]) == (200, False)
    assert answer.json()["thread"].startswith("web")
    assert answer.headers["x-kept"] == "yes"
    assert answer.headers.get_list("content-type") == ["application/json"]
    assert answer.headers.get_list("content-length") == [str(len(answer.content))]


def test_key_announced_before_the_wait_began_is_remembered(web, store):
    announce(store, "k2")
    assert web.get("/hold?key=k2", timeout=20).status_code == 200


def test_key_that_nobody_announces_is_found_by_looking(web, store):
    finish(store, "k3")
    assert web.get("/hold?key=k3", timeout=20).status_code == 200


def test_lost_announcement_is_found_by_the_poll(web, store, in_thread):
    waiting = in_thread(web.get, "/hold?key=k4", timeout=20)
    held(web)
    until(lambda: int(store.get("polls") or 0) >= 1)
    finish(store, "k4")
    assert waiting.result().json()["timed_out"] is False


def test_key_that_nobody_will_announce_is_asked_for_often(web, store, in_thread):
    waiting = in_thread(web.get, "/hold?key=k7&unannounced=1", timeout=20)
    held(web)
    until(lambda: int(store.get("polls") or 0) >= 3)
    finish(store, "k7")
    began = now()
    assert waiting.result().json()["timed_out"] is False
    assert now() - began < 4


def test_calls_that_begin_together_share_their_first_look(web, store):
    web.process.send_signal(signal.SIGSTOP)
    waiting = [raw(web, f"GET /hold?key=many-{n}&seconds=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()) for n in range(10)]
    web.process.send_signal(signal.SIGCONT)  # all ten are there when it looks up
    for caller in waiting:
        caller.settimeout(20)
        assert caller.recv(100).startswith(b"HTTP/1.1 504 ")
        caller.close()
    assert int(store.get("polls")) <= 5


def test_held_call_whose_time_runs_out_says_so(web, store):
    answer = web.get("/hold?key=k5&seconds=0.2", timeout=20)
    assert (answer.status_code, answer.json()["timed_out"]) == (504, True)


def test_caller_that_hangs_up_is_forgotten_and_nothing_is_rendered(web, store):
    gone = raw(web, b"GET /hold?key=k6 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    held(web)
    gone.close()
    held(web, 0)
    announce(store, "k6")
    assert web.get("/echo").status_code == 200
    assert store.get("rendered:k6") is None


@pytest.mark.parametrize("word", ["yes", "broken"])
def test_caller_that_hangs_up_is_told_of_where_it_matters(web, store, word):
    gone = raw(web, f"GET /hold?key=k8&attended={word} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    held(web)
    assert store.get("gone:k8") is None
    gone.close()
    held(web, 0)
    until(lambda: store.get("gone:k8") == b"1")
    assert web.get("/echo").status_code == 200
    assert store.get("rendered:k8") is None


def test_caller_that_is_answered_has_not_gone(web, store, in_thread):
    waiting = in_thread(web.get, "/hold?key=k9&attended=yes", timeout=20)
    held(web)
    announce(store, "k9")
    assert waiting.result().status_code == 200
    assert store.get("gone:k9") is None


def test_that_callers_wait_is_recorded_by_one_query_for_those_of_whom_it_matters(web, store, in_thread):
    waiting = [in_thread(web.get, f"/hold?key=seen-{n}&attended=yes", timeout=30) for n in range(3)]
    waiting += [in_thread(web.get, "/hold?key=unseen", timeout=30), in_thread(web.get, "/hold?key=seen-0&attended=yes", timeout=30)]
    held(web, 5)
    until(lambda: int(store.get("attends") or 0) >= 1, 20)
    for key in ("seen-0", "seen-1", "seen-2", "unseen"):
        announce(store, key)
    assert {answer.result().status_code for answer in waiting} == {200}
    held(web, 0)
    assert {store.get(f"seen:seen-{n}") for n in range(3)} == {store.get("attends")}
    assert store.get("seen:unseen") is None


def test_answer_that_fails_is_a_problem(web, store):
    answer = web.get("/hold?key=k7&seconds=0.1&broken=1", timeout=20)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")


def test_five_hundred_held_calls_hold_no_thread_and_end_together(web, store, record_property):
    async def call(client: httpx.AsyncClient, number: int) -> int:
        return (await client.get(f"{web.url}/hold?key=all&n={number}")).status_code

    async def story() -> list[int]:
        limits = httpx.Limits(max_connections=600)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            before = web.process.memory_info().rss
            calls = [asyncio.create_task(call(client, number)) for number in range(500)]
            while (state := (await client.get(web.url + "/state")).json())["held"] < 500:
                assert not any(task.done() for task in calls)
            record_property("kilobytes_a_call", (web.process.memory_info().rss - before) // 500 // 1024)
            assert state["threads"] <= THREADS + 3
            await asyncio.to_thread(announce, store, "all")
            return await asyncio.gather(*calls)

    assert asyncio.run(story()) == [200] * 500


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_held_calls_are_let_go_when_the_process_must_end(valkey, tmp_path, in_thread, number, record_property):
    with start(tmp_path) as web:
        waiting = [in_thread(web.get, f"/hold?key=end-{n}", timeout=20) for n in range(8)]
        held(web, 8)
        begun = now()
        web.process.send_signal(number)
        assert {(answer.result().status_code, answer.result().json()["timed_out"]) for answer in waiting} == {(504, True)}
        web.process.wait(20)
        record_property("exit_seconds", round(now() - begun, 3))
        # Less than the ten seconds that uvicorn gives connections which don't close.
        assert now() - begun < 8
    assert "Traceback" not in web.log


def test_uvicorn_says_nothing_of_itself(web):
    assert "server" not in web.get("/echo").headers
