"""A program's output, line by line: JSON objects are events, the last result is the response, the rest is text."""

import io
from typing import Any

from .answers import decode, parse_object, usage_of
from .base import Emit, Result

#: Longest type of an event.
MAX_TYPE_CHARACTERS = 32
#: Most events of one run: ten megabytes of `{}` would be millions of rows.
MAX_EVENTS = 10_000


class Output:
    """Takes bytes as they come and passes events on at once. Text lines that came together are one event."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._line = bytearray()
        self._together: list[str] = []
        self._text = io.StringIO()
        self._events = 0
        self._last: dict[str, Any] | None = None

    def feed(self, data: bytes) -> None:
        """Take `data`; an unfinished line waits for its end."""
        start = len(self._line)
        self._line += data
        if self._line.find(b"\n", start) < 0:
            return
        block, _, rest = bytes(self._line).rpartition(b"\n")
        self._line = bytearray(rest)
        if b"{" in block:
            for line in block.split(b"\n"):
                self._take(line)
        else:  # plain text, and perhaps millions of lines of it
            self._together.append(decode(block).replace("\r\n", "\n").removesuffix("\r"))
        self._pass_text()

    def result(self) -> Result:
        """The outcome of a program that succeeded."""
        if self._line:
            self.feed(b"\n")
        if self._last is None:
            return Result(response=self._text.getvalue().removesuffix("\n"))
        response = self._last["response"]
        return Result(response=response, usage=usage_of(self._last.get("usage")))

    def _take(self, line: bytes) -> None:
        fields = parse_object(decode(line)) if line.lstrip().startswith(b"{") else None
        if fields is None:
            self._together.append(decode(line).removesuffix("\r"))
        elif fields.get("type") == "result" and isinstance(fields.get("response"), str):
            self._last = fields
        else:
            self._pass_text()
            self._pass(_type_of(fields.pop("type", None)), fields)

    def _pass_text(self) -> None:
        if not self._together:
            return
        text = "\n".join(self._together)
        self._together.clear()
        self._text.write(text + "\n")
        if text.strip():
            self._pass("text", {"text": text})

    def _pass(self, kind: str, data: dict[str, Any]) -> None:
        self._events += 1
        if self._events < MAX_EVENTS:
            self._emit(kind, data)
        elif self._events == MAX_EVENTS:
            self._emit("truncated", {"text": f"Only the first {MAX_EVENTS - 1} events are kept"})


def _type_of(value: object) -> str:
    return value[:MAX_TYPE_CHARACTERS] if isinstance(value, str) and value else "message"
