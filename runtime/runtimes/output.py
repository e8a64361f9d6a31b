"""A program's output, line by line: JSON objects are events, the last result is the response, the rest is text."""

from typing import Any

from .answers import decode, parse_object, usage_of
from .base import Emit, Result

#: Longest type of an event.
MAX_TYPE_CHARACTERS = 32


class Output:
    """Takes bytes as they come and passes events on at once. Text lines that came together are one event."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._line = bytearray()
        self._together: list[str] = []
        self._text: list[str] = []
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
            return Result(response="\n".join(self._text))
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
            self._emit(_type_of(fields.pop("type", None)), fields)

    def _pass_text(self) -> None:
        lines, self._together = self._together, []
        self._text += lines
        text = "\n".join(lines)
        if text.strip():
            self._emit("text", {"text": text})


def _type_of(value: object) -> str:
    return value[:MAX_TYPE_CHARACTERS] if isinstance(value, str) and value else "message"
