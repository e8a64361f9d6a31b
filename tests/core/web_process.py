"""A web process around a few views that do what the bridge must bear; served by `ARGV`."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import django
from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path, re_path

django.setup()

from core import events
from core.asgi import HOLD, Answer, Bridge, Hold
from core.conf import conf
from core.health import LIVE
from core.lifespan import Lifespan, before_exit, in_background
from core.redis import client
from core.subscriber import Subscriber
from core.threads import Threads
from core.waiters import Waiters


def count(name: str) -> None:
    """One more of these, for the test to read."""
    client().incr(name)
    client().expire(name, 60)


def echo(request: HttpRequest, rest: str = "") -> JsonResponse:
    """What Django made of the request."""
    meta = {name: value for name, value in request.META.items() if isinstance(value, str)}
    body = {"path": request.path, "method": request.method, "body": len(request.body), "meta": meta, "cookies": request.COOKIES}
    response = JsonResponse(body | {"query": dict(request.GET.lists())}, headers={"X-Kept": "yes"})
    response.set_cookie("first", "1")
    response.set_cookie("second", "2")
    return response


def hold(request: HttpRequest) -> HttpResponse:
    """Held for `key`, at most `seconds`."""

    def render(*, timed_out: bool) -> Answer:
        if request.GET.get("broken"):
            raise LookupError("broken")
        count(f"rendered:{request.GET['key']}")
        return Answer.json(504 if timed_out else 200, {"timed_out": timed_out, "thread": threading.current_thread().name})

    def gone() -> None:
        count(f"gone:{request.GET['key']}")
        if request.GET["attended"] == "broken":
            raise LookupError("broken")

    attended = "attended" in request.GET
    request.environ[HOLD] = Hold(
        key=request.GET["key"], seconds=float(request.GET.get("seconds", 30)), render=render, attended=attended,
        gone=gone if attended else None, announced="unannounced" not in request.GET,
    )  # fmt: skip
    return HttpResponse("ignored", status=418, headers={"X-Kept": "yes"})


def work(request: HttpRequest) -> HttpResponse:
    """Keeps its thread for a while."""
    client().blpop("work", float(request.GET["seconds"]))
    return HttpResponse("done")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    """Megabytes."""

    def pieces() -> Iterator[bytes]:
        try:
            for _ in range(int(request.GET["megabytes"])):
                yield b"x" * 1024 * 1024
        finally:
            count("streams-closed")

    return StreamingHttpResponse(pieces())


def state(request: HttpRequest) -> JsonResponse:
    """What this process is busy with."""
    return JsonResponse({"held": len(waiters), "threads": threading.active_count(), "listening": subscriber.listening})


def finished(keys: set[str]) -> set[str]:
    """The test's "database": keys in the store."""
    found = {key for key in keys if client().exists(f"finished:{key}")}
    count("polls")
    return found


def seen(keys: set[str]) -> None:
    """Somebody waits for these."""
    for key in keys:
        count(f"seen:{key}")
    count("attends")


urlpatterns = [
    path("hold", hold),
    path("work", work),
    path("stream", stream),
    path("state", state),
    re_path(r"^echo/?(?P<rest>.*)$", echo),
]
settings.ROOT_URLCONF = __name__
settings.MIDDLEWARE = []


def hear(data: bytes) -> None:
    """An event of the test's."""
    waiters.announce(json.loads(data)["key"])


@asynccontextmanager
async def running() -> AsyncIterator[None]:
    """As in Trinity's own process."""
    before_exit(waiters.let_go)
    async with in_background(subscriber.run, waiters.poll):
        yield


threads = Threads(size=conf.web_threads, name="web")
waiters = Waiters(threads=threads, finished=finished, seen=seen)
subscriber = Subscriber(url=settings.REDIS_URL, handlers={events.CHANNEL: hear, "other": hear}, on_return=waiters.doubt)
application = ProtocolTypeRouter(
    {"http": Bridge(WSGIHandler(), threads=threads, waiters=waiters, fixed=LIVE), "lifespan": Lifespan(running)}
)
