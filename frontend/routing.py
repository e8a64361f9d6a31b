"""Which websocket is at which path."""

from channels.routing import URLRouter
from django.urls import path, re_path

from core.threads import Threads

from .consumers import CapacityConsumer, Unrouted
from .relay import Relay


def websockets(*, relay: Relay, threads: Threads) -> URLRouter:
    """All websockets; the last pattern takes every other path, to close it with a code instead of a failed handshake."""
    return URLRouter(
        [
            path("ws/capacity/", CapacityConsumer.as_asgi(relay=relay, threads=threads)),
            path("ws/capacity", CapacityConsumer.as_asgi(relay=relay, threads=threads)),
            re_path(r"", Unrouted.as_asgi()),
        ]
    )
