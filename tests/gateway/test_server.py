"""The MCP server in this process: who gets in, and what it says to messages that are none."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import httpx
import pytest
import redis
from django.contrib.auth.models import User
from django.utils import timezone

from backlog.models import Execution, Status
from capacity.manager import CapacityManager
from core.threads import Threads
from core.waiters import Waiters
from fleet.models import Agent, ApiKey
from fleet.services import create_key
from fleet.tokens import issue
from gateway.server import McpServer

#: What is asked is read by other threads.
pytestmark = [pytest.mark.flows, pytest.mark.django_db(transaction=True)]

Post = Callable[..., Coroutine[Any, Any, httpx.Response]]
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
LATEST = {"MCP-Protocol-Version": "2026-07-28"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def serve(valkey: redis.Redis, owner: User) -> Callable[[Callable[[Post], Coroutine[Any, Any, None]]], None]:
    """Runs `story(post)` against a server: `post(body, bearer=…, method=…, **headers)`; the bearer is the owner's if none is given."""
    bearer_of_owner = issue(owner).access
    CapacityManager().refill()

    def run(story: Callable[[Post], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(_told(story, bearer_of_owner))

    return run


async def _told(story: Callable[[Post], Coroutine[Any, Any, None]], owners: str) -> None:
    threads = Threads(size=2, name="tests")
    server = McpServer(threads=threads, waiters=Waiters(threads=threads, finished=lambda _: set()))
    transport = httpx.ASGITransport(app=server)  # type: ignore[arg-type]
    failed: list[AssertionError] = []
    try:
        async with server.running(), httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:

            async def post(body: Any = PING, *, bearer: str = owners, method: str = "POST", **headers: str) -> httpx.Response:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                sent = HEADERS | {"Authorization": f"Bearer {bearer}"} | {name.replace("_", "-"): value for name, value in headers.items()}
                return await client.request(
                    method, "/mcp/", content=content, headers={name: value for name, value in sent.items() if value}
                )

            try:
                await story(post)
            except AssertionError as error:  # kept out of the groups that it would be wrapped in
                failed.append(error)
    finally:
        threads.close()
    for error in failed:
        raise error


def call(tool: Any, arguments: Any = None, *, number: Any = 7) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments or {}}}


def modern(body: dict[str, Any]) -> dict[str, Any]:
    """The same message for a client of the latest revision, which sends what it is with each."""
    names = {"protocolVersion": "2026-07-28", "clientInfo": {"name": "tests", "version": "1"}, "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in names.items()}
    return body | {"params": body.get("params", {}) | {"_meta": meta}}


def told(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    return answer.status_code, answer.json()["code"]


# -- Who gets in -------------------------------------------------------------------------------------------------------
def test_credentials_that_prove_nothing_get_no_further_than_the_door(
    serve: Any, owner: User, stranger: User, superuser: User, agent: Agent
) -> None:
    of_agent = create_key(owner=owner, scope="agent", name="k", agent=agent).key
    good = (create_key(owner=owner, scope="user", name="k").key, of_agent)
    revoked = create_key(owner=owner, scope="user", name="revoked").key
    ApiKey.objects.filter(name="revoked").update(revoked_at=timezone.now())
    expired = create_key(owner=owner, scope="user", name="expired", expires_at=timezone.now() + timedelta(hours=1)).key
    ApiKey.objects.filter(name="expired").update(expires_at=timezone.now() - timedelta(seconds=1))
    of_inactive, jwt_of_inactive = create_key(owner=stranger, scope="user", name="k").key, issue(stranger).access
    User.objects.filter(pk=stranger.pk).update(is_active=False)

    async def story(post: Post) -> None:
        for key in good:
            assert (await post(bearer=key)).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        for dead in (revoked, expired, of_inactive, jwt_of_inactive, "nonsense", "trinity_nonsense", "two words"):
            refused = await post(bearer=dead)
            assert (told(refused), refused.headers["WWW-Authenticate"]) == ((401, "invalid_token"), "Bearer")
        for header in ("", "Basic b2xnYTpvbGdh"):
            refused = await post(Authorization=header)
            assert (told(refused), refused.headers["WWW-Authenticate"]) == ((401, "not_authenticated"), "Bearer")
        assert told(await post(b"\xff not JSON", Authorization=""))[0] == 401
        assert told(await post(bearer=of_agent, X_Source_Agent="another")) == (403, "source_agent_forbidden")
        assert (await post(bearer=of_agent, X_Source_Agent=agent.name)).status_code == 200

    serve(story)


def test_a_browsers_session_opens_nothing(serve: Any, owner: User, client: Any) -> None:
    client.force_login(owner)
    cookie = f"sessionid={client.cookies['sessionid'].value}"

    async def story(post: Post) -> None:
        assert told(await post(Authorization="", Cookie=cookie, Origin="http://localhost:8000")) == (401, "not_authenticated")

    serve(story)


def test_requests_must_be_for_this_host_and_pages_of_it_or_allowed(serve: Any, settings: Any) -> None:
    settings.TRINITY_CORS_ORIGINS = ("https://tools.example/",)

    async def story(post: Post) -> None:
        for origin in ("http://localhost:8000", "https://LOCALHOST:8000", "https://tools.example"):
            assert (await post(Origin=origin)).status_code == 200, origin
        for origin in (
            "http://localhost:8001",
            "https://evil.example",
            "null",
            "http://localhost:8000.evil.example",
            "[",
            "https://tools.example.evil",
        ):
            assert told(await post(Origin=origin)) == (403, "origin_forbidden"), origin
        for host in ("evil.example", "localhost:8000@evil.example", "a b"):
            assert told(await post(Host=host)) == (400, "invalid"), host

    serve(story)


def test_nothing_but_a_post_of_json_is_taken(serve: Any, settings: Any) -> None:
    settings.TRINITY_MAX_BODY_BYTES = 1024

    async def story(post: Post) -> None:
        for method in ("GET", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH"):
            refused = await post(method=method)
            assert (refused.status_code, refused.headers["Allow"]) == (405, "POST"), method
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
            assert told(await post(Content_Type=kind)) == (415, "unsupported_media_type"), kind
        assert (await post(Content_Type="application/json; charset=utf-8")).status_code == 200
        assert told(await post(b" " * 1025)) == (413, "body_too_large")
        assert (await post(json.dumps(PING).encode().ljust(1024))).status_code == 200
        assert (await post(Accept="text/html")).status_code == 406

    serve(story)


# -- Messages ----------------------------------------------------------------------------------------------------------
SPOILT = {
    "nothing": b"",
    "not JSON": b"hello",
    "cut": b'{"jsonrpc": "2.0", "id": 1',
    "not UTF-8": b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
    "NaN": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": NaN}}',
    "infinite": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": 1e999}}',
    "deep": b"[" * 100_000,
    "deep and whole": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    "a NUL": json.dumps(call("submit_task", {"agent_name": "a", "message": "a\0b"})).encode(),
    "a lone surrogate": json.dumps(call("submit_task", {"agent_name": "a", "message": "\ud800"})).encode(),
    "a number too long to read": b'{"jsonrpc": "2.0", "id": ' + b"9" * 5000 + b', "method": "ping"}',
}
MISSHAPEN = {
    "a batch": [PING, PING],
    "an empty batch": [],
    "null": None,
    "a text": "ping",
    "a number": 5,
    "no version": {"id": 1, "method": "ping"},
    "another version": {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    "a method that is a number": {"jsonrpc": "2.0", "id": 1, "method": 5},
    "params that are a list": {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]},
    "params that are a text": {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"},
    "neither a call nor an answer": {"jsonrpc": "2.0", "id": 1},
}
#: Well-formed, and still nothing that is served.
UNSERVED = {
    "an unknown method": {"jsonrpc": "2.0", "id": 1, "method": "no/such"},
    "a method of other servers": {"jsonrpc": "2.0", "id": 1, "method": "resources/list"},
    "a stream": {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"notifications": {}}},
    "an unknown tool": call("no_such"),
    "a tool with a long name": call("x" * 10_000),
    "a tool whose name is a number": call(5),
    "arguments that are a list": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_agents", "arguments": [1]}},
    "arguments that are a text": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_agents", "arguments": "x"}},
    "no tool": {"jsonrpc": "2.0", "id": 1, "method": "tools/call"},
    "a cursor that is a list": {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": []}},
    "a handshake without anything": {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
}


def test_what_is_no_message_is_a_clean_400(serve: Any) -> None:
    async def story(post: Post) -> None:
        for headers in ({}, LATEST):
            for name, body in (SPOILT | MISSHAPEN).items():
                answer = await post(body, **headers)
                assert answer.status_code == 400, name
                assert answer.json()["id"] is None
                assert answer.json()["error"]["code"] == (-32700 if name in SPOILT else -32600), name
                _check_tells_nothing(answer)

    serve(story)


def test_what_is_not_served_is_an_error_of_the_protocol(serve: Any) -> None:
    async def story(post: Post) -> None:
        for name, body in UNSERVED.items():
            for sent, headers in ((body, {}), (modern(body), LATEST | {"Mcp-Method": body["method"]})):
                answer = await post(sent, **headers)
                assert answer.status_code in {200, 400, 404}, (name, answer.text)
                assert answer.json()["error"]["code"] in {-32600, -32601, -32602, -32020}, (name, answer.text)
                _check_tells_nothing(answer)

    serve(story)


def test_odd_ids_come_back_as_they_were_or_are_refused(serve: Any) -> None:
    async def story(post: Post) -> None:
        for number in (0, -1, 2**63, 10**30, 10**400, "", "x" * 100_000, "ü€"):
            answer = await post(call("list_agents", number=number))
            assert (answer.status_code, answer.json()["id"]) == (200, number)
        for number in (None, True, 1.5, [], {}):
            answer = await post(call("list_agents", number=number))
            assert answer.status_code in {200, 202, 400}, number
            _check_tells_nothing(answer)

    serve(story)


def test_notifications_and_answers_are_taken_and_change_nothing(serve: Any) -> None:
    async def story(post: Post) -> None:
        for body in (
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
            {"jsonrpc": "2.0", "method": "no/such"},
            {"jsonrpc": "2.0", "id": 5, "result": {}},
        ):
            answer = await post(body)
            assert (answer.status_code, answer.content) == (202, b"")

    serve(story)


# -- Tools through the protocol ----------------------------------------------------------------------------------------
def test_both_revisions_list_and_call_the_tools_alike(serve: Any, agent: Agent) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    looking = call("get_capacity", {"agent_name": agent.name})

    async def story(post: Post) -> None:
        old, new = (await post(listing)).json()["result"], (await post(modern(listing), **LATEST, Mcp_Method="tools/list")).json()["result"]
        assert old["tools"] == new["tools"]
        assert new["cacheScope"] == "private"
        card = next(tool for tool in old["tools"] if tool["name"] == "submit_task")
        assert set(card) == {"name", "title", "description", "inputSchema", "outputSchema", "annotations"}
        assert card["annotations"] == {
            "title": card["title"], "readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True,
        }  # fmt: skip
        headers = LATEST | {"Mcp-Method": "tools/call", "Mcp-Name": "get_capacity"}
        for answer in (await post(looking), await post(modern(looking), **headers)):
            result = answer.json()["result"]
            assert (result["isError"], result["structuredContent"]["agent_name"]) == (False, agent.name)
            assert json.loads(result["content"][0]["text"]) == result["structuredContent"]

    serve(story)


def test_a_key_is_not_shown_what_only_people_may_and_refused_when_it_calls_it(serve: Any, owner: User, agent: Agent) -> None:
    key = create_key(owner=owner, scope="agent", name="k", agent=agent).key

    async def story(post: Post) -> None:
        listed = (await post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, bearer=key)).json()["result"]["tools"]
        assert "set_capacity" not in {tool["name"] for tool in listed}
        assert "submit_task" in {tool["name"] for tool in listed}
        result = (await post(call("set_capacity", {"agent_name": agent.name, "max_parallel_tasks": 9}), bearer=key)).json()["result"]
        assert (result["isError"], result["structuredContent"]["code"]) == (True, "person_required")

    serve(story)
    assert Agent.objects.get(pk=agent.pk).max_parallel_tasks == 3


def test_an_answer_made_before_is_marked(serve: Any, agent: Agent) -> None:
    task = {"agent_name": agent.name, "message": "hello", "async_mode": True, "idempotency_key": "k"}
    headers = LATEST | {"Mcp-Method": "tools/call", "Mcp-Name": "submit_task"}

    async def story(post: Post) -> None:
        first = (await post(call("submit_task", task))).json()["result"]
        assert "_meta" not in first
        for answer in (await post(call("submit_task", task)), await post(modern(call("submit_task", task)), **headers)):
            again = answer.json()["result"]
            assert again["_meta"]["idempotent_replayed"] is True
            assert again["structuredContent"] == first["structuredContent"]

    serve(story)


@pytest.mark.parametrize("headers", [{}, LATEST | {"Mcp-Method": "tools/call", "Mcp-Name": "submit_task"}], ids=["2025", "2026"])
def test_a_held_call_costs_no_thread_and_is_forgotten_when_its_caller_hangs_up(
    valkey: redis.Redis, owner: User, agent: Agent, headers: dict[str, str]
) -> None:
    task = call("submit_task", {"agent_name": agent.name, "message": "hello"})
    sent = HEADERS | {"Authorization": f"Bearer {issue(owner).access}", "Host": "localhost"} | headers
    scope = {
        "type": "http", "method": "POST", "path": "/mcp/", "raw_path": b"/mcp/", "query_string": b"", "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
    }  # fmt: skip
    messages = [{"type": "http.request", "body": json.dumps(modern(task) if headers else task).encode()}]

    async def story() -> None:
        threads, hung_up = Threads(size=1, name="tests"), asyncio.Event()
        waiters = Waiters(threads=threads, finished=lambda _: set())
        server = McpServer(threads=threads, waiters=waiters)

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(_message: Any) -> None:
            assert hung_up.is_set(), "answered before"

        async with server.running(), asyncio.timeout(10):
            held = asyncio.create_task(server(scope, receive, send))
            while not len(waiters):
                await asyncio.sleep(0.01)
            assert await threads.run(lambda: "free") == "free"
            hung_up.set()
            await held
            assert len(waiters) == 0
        threads.close()

    asyncio.run(story())
    assert Execution.objects.get().status == Status.RUNNING


def test_the_handshake_tells_who_it_is_and_keeps_no_session(serve: Any) -> None:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}

    async def story(post: Post) -> None:
        answer = await post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        assert "mcp-session-id" not in answer.headers
        result = answer.json()["result"]
        assert (result["protocolVersion"], result["serverInfo"]["title"]) == ("2025-06-18", "Trinity")
        assert set(result["capabilities"]) <= {"tools", "experimental"}
        assert "get_execution" in result["instructions"]

    serve(story)


def _check_tells_nothing(answer: httpx.Response) -> None:
    for word in ("Traceback", "site-packages", ".py", "pydantic"):
        assert word not in answer.text
    assert len(answer.content) < 2000
