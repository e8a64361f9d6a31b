"""The bridge from ASGI to Django: requests run on a fixed pool of threads, bodies and waits stay on the event loop.

A slow client costs a coroutine, never a thread; a call that must wait places a `Hold` and then costs neither a thread nor
a database connection until its answer is due.
"""

import asyncio
import contextlib
import io
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from django.db import close_old_connections

from .conf import conf
from .errors import TooLarge
from .threads import Threads
from .waiters import Waiters

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Environ = dict[str, Any]
RawHeaders = list[tuple[bytes, bytes]]

#: Where a view places its `Hold`.
HOLD = "trinity.hold"
#: A streamed answer is fetched from its thread in pieces of about this size.
PIECE_BYTES = 256 * 1024


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
    forgotten, and `render` isn't called.
    """

    key: str
    seconds: float
    render: Render


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
            return await _send_answer(answer, [], send)
        try:
            body = await _read_body(scope, receive)
        except TooLarge as error:
            return await _send_answer(_too_large(error), [], send)
        if body is None:
            return None
        environ = environ_of(scope, body)
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
        gone = asyncio.ensure_future(_hung_up(receive))
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
        finished = self._waiters.join(hold.key)
        gone = asyncio.ensure_future(_hung_up(receive))
        ends: set[asyncio.Future[Any]] = {finished, gone}
        try:
            await asyncio.wait(ends, timeout=hold.seconds, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                return
            timed_out = not (finished.done() and finished.result())
        finally:
            self._waiters.leave(hold.key, finished)
            gone.cancel()
        await _send_answer(await self._threads.query(hold.render, timed_out=timed_out), kept, send)


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The request's body; None when the client hung up before its end; `TooLarge` without reading what is too much."""
    limit = conf.max_body_bytes
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if length.isdigit() and int(length) > limit:
        raise TooLarge
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise TooLarge
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _hung_up(receive: Receive) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def environ_of(scope: Scope, body: bytes) -> Environ:
    """The WSGI environ of an ASGI request whose body was read."""
    prefix = scope.get("root_path", "")
    # The undecoded path: what isn't UTF-8 must reach Django as it was sent.
    path = unquote_to_bytes(scope["raw_path"]) if scope.get("raw_path") else scope["path"].encode()
    client, server = (
        scope.get("client") or ("", 0),
        scope.get("server") or ("localhost", 80),
    )
    return {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": prefix.encode().decode("latin-1"),
        "PATH_INFO": path.removeprefix(prefix.encode()).decode("latin-1"),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1] or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": str(client[1]),
        **_header_variables(scope["headers"]),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def _header_variables(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for raw_name, raw_value in headers:
        if b"_" in raw_name:  # `X_Forwarded_For` would pass for `X-Forwarded-For`
            continue
        name = raw_name.decode("latin-1").upper().replace("-", "_")
        key = name if name in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{name}"
        value = raw_value.decode("latin-1")
        joint = "; " if key == "HTTP_COOKIE" else ","
        variables[key] = f"{variables[key]}{joint}{value}" if key in variables else value
    return variables


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


async def _send_answer(answer: Answer, kept: RawHeaders, send: Send) -> None:
    own = {name.lower(): value for name, value in answer.headers.items()}
    replaced = {"content-length", "content-type", *own}
    headers = [(name, value) for name, value in kept if name.decode("latin-1").lower() not in replaced]
    headers += [(_latin(name), _latin(value)) for name, value in own.items() if name != "content-length"]
    if answer.status not in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await _send_whole(answer.status, headers, answer.body, send)


async def _send_whole(status: int, headers: RawHeaders, body: bytes, send: Send) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _too_large(error: TooLarge) -> Answer:
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    body = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": error.detail,
        "code": "body_too_large",
    }
    return Answer.json(status, body, content_type="application/problem+json")


def _latin(text: str) -> bytes:
    return text.encode("latin-1")
