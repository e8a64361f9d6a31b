"""Answers that no agent should give, byte by byte: `AgentServer` gives them to a task whose message says `raw={name}`.

Each is written while the agent's work goes on: it is over when the answer is written whole, or when it is terminated.
"""

import json
import socket
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from .ledger import Call

MEBIBYTE = 1024 * 1024
FLOOD_BYTES = 200 * MEBIBYTE
RESULT = {"type": "result", "response": "streamed", "usage": {"input_tokens": 1, "output_tokens": 2, "cost_usd": 0.25}}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson; charset=utf-8\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
TO_THE_END = b"Connection: close\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Wire:
    """The connection of one call."""

    def __init__(self, connection: socket.socket, call: Call) -> None:
        self._connection = connection
        self.call = call

    def send(self, *parts: bytes) -> None:
        """Send bytes as they are."""
        self._connection.sendall(b"".join(parts))

    def chunks(self, parts: Iterable[bytes]) -> None:
        """Send the parts as chunks, and the end."""
        for part in parts:
            self.send(b"%x\r\n" % len(part), part, b"\r\n")
        self.send(b"0\r\n\r\n")

    def dribble(self, data: bytes) -> None:
        """Send a byte at a time, slower than any patience."""
        for number in range(len(data)):
            if self.call.over.wait(0.2):
                return
            self.send(data[number : number + 1])

    def hold(self) -> None:
        """Say nothing more until told to end."""
        self.call.over.wait()


def line(**fields: Any) -> bytes:
    """One event."""
    return json.dumps(fields).encode() + b"\n"


def flood(part: bytes = b"x" * 65536) -> Iterable[bytes]:
    """Two hundred megabytes of it."""
    return (part for _ in range(FLOOD_BYTES // len(part)))


def plain(body: bytes, *headers: bytes) -> Callable[[Wire], None]:
    """A whole answer with this body."""
    return lambda wire: wire.send(JSON, *headers, b"Content-Length: %d\r\n\r\n" % len(body), body)


def streamed(*lines: bytes) -> Callable[[Wire], None]:
    """A whole stream of these lines, one chunk each."""
    return lambda wire: wire.send(STREAM, CHUNKED) or wire.chunks(lines)


def held_after(*parts: bytes) -> Callable[[Wire], None]:
    """These bytes, and then nothing until it is told to end."""
    return lambda wire: wire.send(*parts) or wire.hold()


def cut_after(*parts: bytes) -> Callable[[Wire], None]:
    """These bytes, and then the connection closes."""
    return lambda wire: wire.send(*parts)


def dribbled(head: bytes, rest: bytes) -> Callable[[Wire], None]:
    """The head at once, the rest byte by byte."""
    return lambda wire: wire.send(head) or wire.dribble(rest)


def flooded(*head: bytes, part: bytes = b"x" * 65536) -> Callable[[Wire], None]:
    """The head, and two hundred megabytes of `part` as chunks."""
    return lambda wire: wire.send(*head, CHUNKED) or wire.chunks(flood(part))


def bomb(wire: Wire) -> None:
    """A hundred megabytes packed into one hundred kilobytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join(packer.compress(b" " * MEBIBYTE) for _ in range(100)) + packer.flush()
    plain(body, b"Content-Encoding: gzip\r\n")(wire)


def storm(wire: Wire) -> None:
    """Events without end, as fast as they are taken."""
    wire.send(STREAM, CHUNKED)
    while not wire.call.over.is_set():
        wire.send(_chunk(b'{"type": "note", "text": "x"}\n' * 2000))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD_OF_ANSWER = JSON + b"Content-Length: 1000\r\n\r\n"
ANSWERS: dict[str, Callable[[Wire], None]] = {
    # Never ends
    "silence": held_after(),
    "head-only": held_after(HEAD_OF_ANSWER),
    "half-body": held_after(HEAD_OF_ANSWER, b'{"response": "half'),
    "open-stream": held_after(STREAM, CHUNKED, _chunk(line(type="progress", step=1))),
    "result-and-open": held_after(STREAM, CHUNKED, _chunk(line(**RESULT))),
    "dribbled-head": dribbled(b"", HEAD_OF_ANSWER),
    "dribbled-body": dribbled(HEAD_OF_ANSWER, b'{"response": "' + b"x" * 900),
    "dribbled-stream": dribbled(STREAM + TO_THE_END, b'{"type": "progress"' + b" " * 900),
    "dribbled-refusal": dribbled(b"HTTP/1.1 500 Oops\r\nContent-Length: 1000\r\n\r\nbroken", b"." * 900),
    # Ends too early
    "nothing": cut_after(),
    "cut-head": cut_after(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "cut-body": cut_after(HEAD_OF_ANSWER, b'{"response": "half'),
    "cut-line": cut_after(STREAM, CHUNKED, _chunk(line(type="progress", step=1)), _chunk(b'{"type": "result", "resp')),
    "cut-line-at-the-end": streamed(line(type="progress", step=1), b'{"type": "result", "resp'),
    "cut-before-the-result": cut_after(STREAM, TO_THE_END, line(type="progress", step=1)),
    "cut-after-the-result": cut_after(STREAM, CHUNKED, _chunk(line(**RESULT))),
    "empty-stream": streamed(),
    # Wrong on the wire
    "bad-chunk-size": cut_after(STREAM, CHUNKED, b"zz\r\n{}\n\r\n0\r\n\r\n"),
    "bad-chunk-end": cut_after(STREAM, CHUNKED, b"3\r\n{}\nmore than it said\r\n0\r\n\r\n"),
    "two-lengths": cut_after(JSON, b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    "endless-head": cut_after(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 500_000, b"\r\n\r\n"),
    "not-http": cut_after(b"220 mail.example ESMTP\r\n"),
    "packed": bomb,
    # Too much
    "storm": storm,
    "flood": lambda wire: wire.send(JSON, b"Content-Length: %d\r\n\r\n" % FLOOD_BYTES) or [wire.send(part) for part in flood()],
    "flood-of-chunks": flooded(JSON),
    "flood-of-lines": flooded(STREAM, part=line(type="note", text="x" * 1000) * 60),
    "flood-of-events": flooded(STREAM, part=b"{}\n" * 20_000),
    "flood-of-text": flooded(STREAM, part=b"x\n" * 30_000),
    "flood-in-one-line": flooded(STREAM),
    "flood-in-one-result": lambda wire: wire.send(STREAM, CHUNKED) or wire.chunks([b'{"type": "result", "response": "', *flood()]),
    "flood-of-refusal": lambda wire: wire.send(b"HTTP/1.1 500 Oops\r\n", CHUNKED) or wire.chunks(flood()),
    "many-values": plain(b'{"response": "ok", "more": [' + b"[]," * 3_000_000 + b"[]]}"),
    "many-values-in-a-line": streamed(b'{"more": [' + b"[]," * 3_000_000 + b"[]]}\n", line(**RESULT)),
    # Somebody else's answer, while the work goes on
    "gateway": held_after(b"HTTP/1.1 504 Gateway Time-out\r\nContent-Length: 0\r\n\r\n"),
    "other-gateway": held_after(b"HTTP/1.1 524 A Timeout Occurred\r\nContent-Length: 0\r\n\r\n"),
    "accepted": held_after(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"),
    # Not what it should say
    "no-json": plain(b"<html>"),
    "no-body": plain(b""),
    "a-list": plain(b'[{"response": "no"}]'),
    "a-text": plain(b'"response"'),
    "null": plain(b"null"),
    "no-response": plain(b'{"status": "success"}'),
    "number-as-response": plain(b'{"response": 5}'),
    "half-a-character": plain(b'{"response": "caf\xc3"}'),
    "half-a-character-in-a-line": streamed(b'{"type": "note", "text": "caf\xc3"}\n', line(**RESULT)),
    "a-character-in-two-chunks": streamed(b'{"type": "note", "text": "caf\xc3', b'\xa9"}\n', line(**RESULT)),
    "nul-and-surrogates": streamed(rb'{"type": "no\u0000te", "k\u0000": "a\u0000b\ud800c"}', b"\n", b'a\0b"\n', line(**RESULT)),
    "nan": streamed(b'{"type": "note", "value": NaN}\n', line(**RESULT)),
    "deep": streamed(b'{"type": "note", "deep": ' + b"[" * 500 + b"]" * 500 + b"}\n", line(**RESULT)),
    "events": streamed(*[line(type="progress", step=step) for step in range(25_000)], line(**RESULT)),
    "failed": plain(b'{"response": "half done", "status": "failed", "error": "Out of tokens"}'),
    "failed-stream": streamed(line(type="progress", step=1), line(type="result", status="error", error="Out of tokens")),
    "two-results": streamed(line(type="result", response="first"), line(type="note", text="more"), line(**RESULT)),
    "no-last-newline": streamed(line(type="note", text="a"), line(**RESULT).rstrip()),
    "windows-lines": streamed(b'{"type": "note", "text": "a"}\r\n\r\n', line(**RESULT).replace(b"\n", b"\r\n")),
}
