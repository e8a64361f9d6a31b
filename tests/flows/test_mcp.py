"""The official MCP client against a whole Trinity."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, check_rest, execution, submit
from tests.stack import ROOT, Stack

Until = Callable[..., Any]
LEGACY, LATEST = "legacy", "2026-07-28"


@asynccontextmanager
async def connected(stack: Stack, key: str | None = None, *, mode: Any = LATEST, path: str = "/mcp/") -> AsyncIterator[Client]:
    """A client with a key, the owner's if none is given."""
    headers = {"Authorization": f"Bearer {key or stack.owner_key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(stack.url + path, http_client=http), mode=mode) as client,
    ):
        yield client


def told(story: Coroutine[Any, Any, Any]) -> Any:
    """What came of a story; the client wraps what is raised inside it in groups, which are opened here."""
    try:
        return asyncio.run(story)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from group


def body(result: CallToolResult) -> Any:
    """The body of a call that must have succeeded."""
    assert not result.is_error, result
    return result.structured_content


def refusal(result: CallToolResult) -> tuple[int, str]:
    """Status and code of one that must not have."""
    assert result.is_error, result
    return result.structured_content["status"], result.structured_content["code"]


def http_agent(stack: Stack, agent_server: AgentServer, *, limit: int = 1) -> str:
    return stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=limit)


@pytest.mark.parametrize(("mode", "path"), [(LEGACY, "/mcp"), (LATEST, "/mcp/"), ("auto", "/mcp/")])
def test_a_client_lists_the_tools_submits_waits_and_cancels(stack: Stack, agent_server: AgentServer, mode: str, path: str) -> None:
    agent = http_agent(stack, agent_server)

    async def story() -> tuple[str, str]:
        async with connected(stack, mode=mode, path=path) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {
                "list_agents", "get_capacity", "submit_task", "get_execution", "cancel_execution", "list_queue", "set_capacity",
            }  # fmt: skip
            done = body(await client.call_tool("submit_task", {"agent_name": agent, "message": "hello"}))
            assert (done["status"], done["response"], done["triggered_by"]) == ("success", "done: hello", "mcp")

            running = body(await client.call_tool("submit_task", {"agent_name": agent, "message": "hang", "async_mode": True}))
            queued = body(await client.call_tool("submit_task", {"agent_name": agent, "message": "next", "async_mode": True}))
            assert (running["status"], queued["status"], queued["queue_position"]) == ("accepted", "queued", 1)
            line = body(await client.call_tool("list_queue", {"agent_name": agent}))
            assert [(one["id"], one["waiting_for"]) for one in line["results"]] == [(queued["execution_id"], "slot")]
            full = await client.call_tool("submit_task", {"agent_name": agent, "message": "no room"})
            assert refusal(full) == (429, "at_capacity")
            assert full.structured_content["retry_after"] >= 1

            waiting = asyncio.create_task(client.call_tool("get_execution", {"execution_id": queued["execution_id"], "wait": 60}))
            cancelled = await client.call_tool("cancel_execution", {"execution_id": running["execution_id"]})
            assert body(cancelled)["status"] in {"cancelling", "cancelled"}
            assert body(await waiting)["response"] == "done: next"
            capacity = body(await client.call_tool("get_capacity", {"agent_name": agent}))
            assert (capacity["max_parallel_tasks"], capacity["queued"]) == (1, 0)
            return running["execution_id"], queued["execution_id"]

    ids = told(story())
    assert [execution(stack.api(), one)["status"] for one in ids] == ["cancelled", "success"]
    check_rest(stack, agent)


def test_calls_held_by_the_dozen_cost_no_thread_and_all_hear_of_the_end(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = http_agent(stack, agent_server)
    execution_id = submit(stack.api(), agent, "hang")["execution_id"]

    async def story() -> list[CallToolResult]:
        async with connected(stack) as client:
            waiting = [
                asyncio.create_task(client.call_tool("get_execution", {"execution_id": execution_id, "wait": 60})) for _ in range(40)
            ]
            await asyncio.to_thread(until, lambda: agent_server.active == 1)
            # More than there are threads, and others are answered.
            assert body(await client.call_tool("get_execution", {"execution_id": execution_id}))["status"] == "running"
            agent_server.let_go()
            return await asyncio.gather(*waiting)

    assert {body(result)["status"] for result in told(story())} == {"success"}


def test_a_client_that_hangs_up_changes_nothing(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = http_agent(stack, agent_server)
    call = {"name": "submit_task", "arguments": {"agent_name": agent, "message": "sleep=1 goes on"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    with pytest.raises(httpx.ReadTimeout):
        stack.api().post("/mcp/", json=message, timeout=0.5)
    until(lambda: agent_server.started)
    [execution_id] = agent_server.started
    until(lambda: all_ended(stack.api(), [execution_id]))
    assert execution(stack.api(), execution_id)["response"] == "done: sleep=1 goes on"


def test_a_failed_run_is_told_as_its_error(stack: Stack, agent_server: AgentServer) -> None:
    agent = http_agent(stack, agent_server)

    async def story() -> CallToolResult:
        async with connected(stack) as client:
            return await client.call_tool("submit_task", {"agent_name": agent, "message": "status=401"})

    failed = told(story())
    assert refusal(failed) == (502, "agent_auth")
    assert execution(stack.api(), failed.structured_content["execution_id"])["status"] == "failed"


def test_keys_and_strangers_are_refused_and_a_raise_starts_what_waits(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = http_agent(stack, agent_server)
    command = ["create_key", "--user", "olga", "--scope", "agent", "--agent", agent]
    agents_key = stack._command(*command).split()[-1]
    for message in ("hang 1", "hang 2"):
        submit(stack.api(), agent, message)
    until(lambda: agent_server.active == 1)
    raise_it = {"agent_name": agent, "max_parallel_tasks": 2}

    async def story(key: str) -> tuple[CallToolResult, CallToolResult]:
        async with connected(stack, key) as client:
            return await client.call_tool("set_capacity", raise_it), await client.call_tool("list_queue", {"agent_name": agent})

    changed, line = told(story(agents_key))
    assert (refusal(changed), body(line)["depth"]) == ((403, "person_required"), 1)
    assert [refusal(result) for result in told(story(stack.keys["stranger"]))] == [(403, "access_denied")] * 2
    changed, _line = told(story(stack.owner_key))
    assert body(changed)["message"] == "Capacity updated"
    until(lambda: agent_server.active == 2)
    agent_server.let_go()


def test_a_revoked_key_is_a_401_from_then_on(stack: Stack) -> None:
    key = stack._command("create_key", "--user", "olga", "--scope", "user").split()[-1]

    async def story() -> None:
        async with connected(stack, key) as client:
            await client.list_tools()
            stack.sql("UPDATE fleet_apikey SET revoked_at = created_at WHERE prefix = %s", key[: len(_prefix(stack, key))])
            with pytest.raises(MCPError):
                await client.call_tool("list_agents", {})

    told(story())
    refused = stack.api(key).post("/mcp/", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert (refused.status_code, refused.headers["WWW-Authenticate"], refused.json()["code"]) == (401, "Bearer", "invalid_token")


def _prefix(stack: Stack, key: str) -> str:
    [prefix] = [row["prefix"] for row in stack.sql("SELECT prefix FROM fleet_apikey") if key.startswith(row["prefix"])]
    return prefix


def test_held_calls_are_answered_when_the_web_process_stops(stack: Stack, agent_server: AgentServer, until: Until) -> None:
    agent = http_agent(stack, agent_server)
    execution_id = submit(stack.api(), agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1)

    async def story() -> CallToolResult:
        async with connected(stack) as client:
            await client.list_tools()
            waiting = asyncio.create_task(client.call_tool("get_execution", {"execution_id": execution_id, "wait": 60}))
            # A second answer on the same connection pool shows that the first has been sent.
            await client.call_tool("get_execution", {"execution_id": execution_id, "wait": 1})
            stack.web.signal(signal.SIGTERM)
            return await waiting

    assert body(told(story()))["status"] == "running"
    stack.restart_web()
    agent_server.let_go()


def test_the_example_of_the_document_runs(stack: Stack, agent_server: AgentServer, tmp_path: Path) -> None:
    agent = http_agent(stack, agent_server)
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "mcp.md").read_text(), flags=re.DOTALL)
    (tmp_path / "example.py").write_text(program)
    proxies = {name for name in os.environ if name.lower().endswith("_proxy")}
    env = {name: value for name, value in os.environ.items() if name not in proxies}
    env |= {"TRINITY_KEY": stack.owner_key, "TRINITY_URL": stack.url, "AGENT": agent}
    done = subprocess.run([sys.executable, tmp_path / "example.py"], check=False, capture_output=True, text=True, env=env, timeout=60)
    assert (done.returncode, done.stdout) == (0, "success done: Summarise the news\n"), done.stderr


def test_neither_commands_nor_workers_load_the_library() -> None:
    program = """
import sys
import django
django.setup()
import trinity.celery, trinity.urls, runtime.tasks, runtime.worker
from django.core.management import call_command
call_command("check")
print(sorted({name.partition(".")[0] for name in sys.modules} & {"mcp", "mcp_types", "starlette", "httpx2"}))
"""
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "trinity.settings"}
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=env, cwd=ROOT, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
