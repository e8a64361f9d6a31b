"""Trinity's MCP server: streamable HTTP without sessions, a JSON answer to each POST."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from mcp_types import Tool as ToolCard
from pydantic import ValidationError

from core.api.fields import shortened
from core.api.parsers import parse_json
from core.asgi import Answer, Message, Receive, Scope, Send, hung_up, problem_answer, read_body, send_answer
from core.conf import conf
from core.errors import Invalid
from core.threads import Threads
from core.waiters import Waiters

from .calls import Calls, Result
from .catalogue import TOOLS, Tool, shown_to
from .entrance import let_in

INSTRUCTIONS = (
    "Trinity gives tasks to agents, each of which runs a limited number at once. Submit with `async_mode: true` and follow the "
    "execution with `get_execution` and `wait`; a refusal with `retry_after` may be tried again after so many seconds."
)
#: Where a request's caller, and the future of their hanging up, are kept for the tools.
_CALLER, _GONE = "trinity.caller", "trinity.gone"


class McpServer:
    """An ASGI application for `/mcp/`; it answers while the process is within `running`."""

    def __init__(self, *, threads: Threads, waiters: Waiters) -> None:
        self._threads = threads
        self._calls = Calls(threads=threads, waiters=waiters)
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What serves the protocol; made here, because it can be entered only once."""
        manager = StreamableHTTPSessionManager(
            app=self._server(), json_response=True, stateless=True, max_request_body_size=conf.max_body_bytes
        )
        async with manager.run():
            await self._threads.run(_card_all)
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: a problem where it doesn't get in, else what MCP says."""
        try:
            body = await read_body(scope, receive)
            if body is None:
                return None
            caller = await self._threads.query(let_in, scope)
            spoilt = await self._threads.run(_spoilt, body)
        except Exception as error:  # noqa: BLE001 - above here nobody knows how to answer; what is unforeseen gets logged there
            return await send_answer(problem_answer(error), [], send)
        if spoilt is not None:
            return await send_answer(spoilt, [], send)
        return await self._serve({**scope, _CALLER: caller}, body, receive, send)

    async def _serve(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        assert self._manager is not None, "not within `running`"  # noqa: S101 - a fault of the wiring
        gone = asyncio.ensure_future(hung_up(receive))
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def next_message() -> Message:
            if messages:
                return messages.pop()
            await asyncio.wait({gone})
            return {"type": "http.disconnect"}

        try:
            await self._manager.handle_request({**scope, _GONE: gone}, next_message, send)
        finally:
            gone.cancel()

    def _server(self) -> Server[Any]:
        return Server(
            "trinity",
            title="Trinity",
            version=version("trinity-capacity"),
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            get_tool_input_schema=lambda name: TOOLS[name].input_schema if name in TOOLS else None,
            cache_hints={"tools/list": CacheHint(scope="private")},
        )

    async def _list_tools(self, ctx: ServerRequestContext[Any], _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_card(tool) for tool in shown_to(_kept(ctx, _CALLER))])

    async def _call_tool(self, ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool '{shortened(params.name)}'; the tools are {', '.join(TOOLS)}")
        arguments = params.arguments or {}
        result = await self._calls.call(tool, principal=_kept(ctx, _CALLER), arguments=arguments, gone=_kept(ctx, _GONE))
        return CallToolResult(content=[]) if result is None else _told(result)


def _kept(ctx: ServerRequestContext[Any], name: str) -> Any:
    assert ctx.request is not None, "not over HTTP"  # noqa: S101 - a fault of the wiring
    return ctx.request.scope[name]


def _card_all() -> None:
    """The schemas are made once, and not while somebody waits."""
    for tool in TOOLS.values():
        _card(tool)


def _card(tool: Tool) -> ToolCard:
    return ToolCard(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


def _told(result: Result) -> CallToolResult:
    # The text says the same, for clients that know no structured content.
    told = CallToolResult(content=[TextContent(text=result.text)], structured_content=result.body, is_error=result.refused)
    return told.model_copy(update={"meta": {"idempotent_replayed": True}}) if result.replayed else told


def _spoilt(body: bytes) -> Answer | None:
    """The answer to what is no message of JSON-RPC; None for one."""
    try:
        jsonrpc_message_adapter.validate_python(parse_json(body), by_name=False)
    except Invalid as error:
        return _rpc_error(PARSE_ERROR, error.detail)
    except ValidationError:
        return _rpc_error(INVALID_REQUEST, "The request body must be one JSON-RPC message")
    return None


def _rpc_error(code: int, message: str) -> Answer:
    error: Mapping[str, Any] = {"code": code, "message": message}
    return Answer.json(400, {"jsonrpc": "2.0", "id": None, "error": error}, headers={"Cache-Control": "no-store"})
