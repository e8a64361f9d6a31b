"""The web process: HTTP through the bridge, tools through the MCP server, websockets through the relays, one subscription for all."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")
wsgi = get_wsgi_application()

from channels.routing import ProtocolTypeRouter
from django.conf import settings

from backlog import presence
from capacity import keys
from core import events
from core.asgi import Bridge, Receive, Scope, Send
from core.conf import conf
from core.health import LIVE
from core.lifespan import Lifespan, before_exit, in_background
from core.subscriber import Subscriber
from core.threads import Threads
from core.waiters import Waiters
from fleet.events import RightsChanged
from frontend.execution_relay import ExecutionRelay
from frontend.relay import Relay
from frontend.routing import websockets
from gateway.server import McpServer
from runtime import held
from runtime.events import ExecutionFinished, ExecutionStarted


def seen(execution_ids: set[str]) -> None:
    """Record that callers wait for these executions, which wait only as long as they do."""
    presence.note_seen(UUID(text) for text in execution_ids)


def hear(data: bytes) -> None:
    """Let go of the calls that an event answers; look at once who may see what, where that has changed."""
    event = json.loads(data)
    if event["type"] == ExecutionFinished.type:
        waiters.announce(event["execution_id"])
    if event["type"] in {ExecutionStarted.type, ExecutionFinished.type}:
        executions.hint(event["execution_id"])
    if event["type"] == RightsChanged.type:
        relay.check_rights()
        executions.check_rights()


def doubt() -> None:
    """The subscription is new: what was said before it is to be looked up."""
    waiters.doubt()
    relay.doubt()
    executions.doubt()


@asynccontextmanager
async def running() -> AsyncIterator[None]:
    """Everything that lives beside the requests."""
    before_exit(waiters.let_go)
    async with mcp.running(), in_background(subscriber.run, waiters.poll, relay.run, executions.run):
        yield


async def http(scope: Scope, receive: Receive, send: Send) -> None:
    """The tool server at its path, Django at every other."""
    await (mcp if scope["path"] in {"/mcp", "/mcp/"} else bridge)(scope, receive, send)


threads = Threads(size=conf.web_threads, name="web")
waiters = Waiters(threads=threads, finished=held.finished, seen=seen)
relay = Relay()
executions = ExecutionRelay()
bridge = Bridge(wsgi, threads=threads, waiters=waiters, fixed=LIVE)
mcp = McpServer(threads=threads, waiters=waiters)
subscriber = Subscriber(url=settings.REDIS_URL, handlers={events.CHANNEL: hear, keys.hints(): relay.hint}, on_return=doubt)

application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": websockets(relay=relay, executions=executions, threads=threads),
        "lifespan": Lifespan(running),
    }
)
