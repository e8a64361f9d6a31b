"""The bridge from ASGI to Django: requests run on a fixed pool of threads, bodies and waits stay on the event loop.

A slow client costs a coroutine, never a thread; a call that must wait places a `Hold` and then costs neither a thread nor
a database connection until its answer is due.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

import structlog
from django.db import close_old_connections

from .api.problems import problem_response
from .conf import conf
from .environ import environ_of
from .errors import BodyTooLarge
from .threads import Threads
from .waiters import Waiters

log = structlog.get_logger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Environ = dict[str, Any]
RawHeaders = list[tuple[bytes, bytes]]

#: Where a view places its `Hold`.
HOLD = "trinity.hold"
#: Set where a `Hold` will be honoured; elsewhere a view must answer at once.
HOLDS = "trinity.holds"
#: A streamed answer is fetched from its thread in pieces of about this size.
PIECE_BYTES = 256 * 1024
_BODILESS = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole HTTP response. Its length is filled in."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(
        cls,
        status: int,
        data: Any,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> "Answer":
        """`data` as JSON."""
        return cls(
            status=status,
            body=json.dumps(data).encode(),
            headers={"Content-Type": content_type, **(headers or {})},
        )


class Render(Protocol):
    """Makes a held call's answer, on a thread of the pool: it may query the database."""

    def __call__(self, *, timed_out: bool) -> Answer:
        """The answer; `timed_out`: the wait ended before the key was announced finished."""
        ...


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A view's wish to answer later: when `key` is finished, or after `seconds`.

    Placed in `request.environ["trinity.hold"]`. The status and body that the view returned are dropped then; its other
    headers (the middleware's among them) are kept where the answer doesn't set its own. A caller that hangs up is
    forgotten: `render` isn't called, but `gone` is, on a thread of the pool, where it is given. `attended`: that they wait is
    recorded every few seconds; not `announced`: nothing tells that the key is finished, but a look does (`Waiters`).
    """

    key: str
    seconds: float
    render: Render
    attended: bool = False
    announced: bool = True
    gone: Callable[[], object] | None = None


@dataclass(kw_only=True)
class _Response:
    """What a WSGI application gave back."""

    status: int
    headers: RawHeaders
    pieces: Iterable[bytes]
    streaming: bool
    body: bytes = b""


class Bridge:
    """An ASGI application for HTTP around a WSGI one."""

    def __init__(
        self,
        wsgi: Callable[..., Iterable[bytes]],
        *,
        threads: Threads,
        waiters: Waiters,
        fixed: Mapping[str, Answer] | None = None,
    ) -> None:
        """`fixed` are answers by path that need no thread: they come however busy the pool is."""
        self._wsgi = wsgi
        self._threads = threads
        self._waiters = waiters
        self._fixed = fixed or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if answer := self._fixed.get(scope["path"].rstrip("/")):
            return await send_answer(answer, [], send)
        try:
            body = await read_body(scope, receive)
        except BodyTooLarge as error:
            return await send_answer(problem_answer(error), [], send)
        if body is None:
            return None
        environ = environ_of(scope, body) | {HOLDS: True}
        response = await self._threads.run(self._respond, environ)
        hold = environ.get(HOLD)
        if hold is not None:
            await self._answer_later(hold, response.headers, receive, send)
        elif response.streaming:
            await self._stream(response, receive, send)
        else:
            await _send_whole(response.status, response.headers, response.body, send)
        return None

    def _respond(self, environ: Environ) -> _Response:
        """Run the request; a response that is not streamed is complete and closed on return."""
        started: list[tuple[int, RawHeaders]] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            started[:] = [
                (
                    int(status.split(" ", 1)[0]),
                    [(_latin(name), _latin(value)) for name, value in headers],
                )
            ]

        result = self._wsgi(environ, start_response)
        streaming = bool(getattr(result, "streaming", False)) and HOLD not in environ
        response = _Response(
            status=started[0][0],
            headers=started[0][1],
            pieces=result,
            streaming=streaming,
        )
        if streaming:
            # Its pieces may come from other threads: this one keeps no connection for it.
            close_old_connections()
            return response
        try:
            response.body = b"" if HOLD in environ else b"".join(result)
        finally:
            _close(result)
        return response

    async def _stream(self, response: _Response, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(hung_up(receive))
        pieces = iter(response.pieces)
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": response.status,
                    "headers": response.headers,
                }
            )
            while not gone.done() and (piece := await self._threads.query(_next_piece, pieces)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            await self._threads.run(_close, response.pieces)

    async def _answer_later(self, hold: Hold, kept: RawHeaders, receive: Receive, send: Send) -> None:
        finished = self._waiters.join(hold.key, attended=hold.attended, announced=hold.announced)
        gone = asyncio.ensure_future(hung_up(receive))
        ends: set[asyncio.Future[Any]] = {finished, gone}
        try:
            await asyncio.wait(ends, timeout=hold.seconds, return_when=asyncio.FIRST_COMPLETED)
            left, timed_out = gone.done(), not (finished.done() and finished.result())
        finally:
            self._waiters.leave(hold.key, finished)
            gone.cancel()
        if left:
            await self._tell_gone(hold)
        else:
            await send_answer(await self._threads.query(rendered, hold, timed_out), kept, send)

    async def _tell_gone(self, hold: Hold) -> None:
        if hold.gone is None:
            return
        try:
            await self._threads.query(hold.gone)
        except Exception:
            # Nobody is left to be answered; that the caller is no longer seen to wait says the same, later.
            log.exception("hold.gone_failed")


async def read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The request's body; None when the client hung up before its end; `BodyTooLarge` without reading what is too much."""
    limit = conf.max_body_bytes
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if length.isdigit() and int(length) > limit:
        raise BodyTooLarge(limit=limit)
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise BodyTooLarge(limit=limit)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def hung_up(receive: Receive) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def rendered(hold: Hold, timed_out: bool) -> Answer:
    """The held call's answer, an error's where it is one; on a thread of the pool."""
    try:
        return hold.render(timed_out=timed_out)
    except Exception as error:  # noqa: BLE001 - above here nobody knows how to answer; what is unforeseen gets logged there
        return problem_answer(error)


def _next_piece(pieces: Any) -> bytes:
    """The next bytes of a stream, several of its pieces joined; nothing at its end."""
    joined = bytearray()
    with contextlib.suppress(StopIteration):
        while len(joined) < PIECE_BYTES:
            joined += next(pieces)
    return bytes(joined)


def _close(result: Any) -> None:
    close = getattr(result, "close", None)
    if close is not None:
        close()


async def send_answer(answer: Answer, kept: RawHeaders, send: Send) -> None:
    """Send a whole answer, and those of the `kept` headers that it doesn't set itself."""
    own = {name.lower(): value for name, value in answer.headers.items()}
    replaced = {"content-length", "content-type", *own}
    headers = [(name, value) for name, value in kept if name.decode("latin-1").lower() not in replaced]
    headers += [(_latin(name), _latin(value)) for name, value in own.items() if name != "content-length"]
    await _send_whole(answer.status, headers, answer.body, send)


async def _send_whole(status: int, headers: RawHeaders, body: bytes, send: Send) -> None:
    if status not in _BODILESS and not any(name.lower() == b"content-length" for name, _ in headers):
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def problem_answer(error: Exception) -> Answer:
    """The answer that an error is."""
    problem = problem_response(error)
    return Answer(status=problem.status, headers=problem.headers, body=problem.body)


def _latin(text: str) -> bytes:
    return text.encode("latin-1")
