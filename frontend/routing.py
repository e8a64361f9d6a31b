"""Which websocket is at which path."""

from channels.routing import URLRouter
from django.urls import path, re_path

from core.threads import Threads

from .consumers import CapacityConsumer, Unrouted
from .execution_relay import ExecutionRelay
from .execution_socket import ExecutionConsumer
from .relay import Relay


def websockets(*, relay: Relay, executions: ExecutionRelay, threads: Threads) -> URLRouter:
    """All websockets; the last pattern takes every other path, to close it with a code instead of a failed handshake."""
    return URLRouter(
        [
            path("ws/capacity/", CapacityConsumer.as_asgi(relay=relay, threads=threads)),
            path("ws/capacity", CapacityConsumer.as_asgi(relay=relay, threads=threads)),
            path("ws/executions/<uuid:execution_id>/", ExecutionConsumer.as_asgi(executions=executions, threads=threads)),
            path("ws/executions/<uuid:execution_id>", ExecutionConsumer.as_asgi(executions=executions, threads=threads)),
            re_path(r"", Unrouted.as_asgi()),
        ]
    )
