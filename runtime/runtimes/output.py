"""What an agent says while it works, line by line: JSON objects are events, the last result is the answer, the rest is text."""

import io
from typing import Any

from .answers import FAILED, decode, parse_object, result_of
from .base import Emit, Result

#: Longest type of an event.
MAX_TYPE_CHARACTERS = 32


class Output:
    """Takes bytes as they come and passes events on at once. Text lines that came together are one event.

    With `keep_text` what is no event is kept as well: the answer of programs that know nothing of results.
    """

    def __init__(self, emit: Emit, *, keep_text: bool) -> None:
        self._emit = emit
        self._keep_text = keep_text
        self._line = bytearray()
        self._together: list[str] = []
        self._text = io.StringIO()
        self._kept = True
        self._last: dict[str, Any] | None = None

    def feed(self, data: bytes) -> None:
        """Take `data`; an unfinished line waits for its end."""
        start = len(self._line)
        self._line += data
        if self._line.find(b"\n", start) < 0:
            return
        block, _, rest = bytes(self._line).rpartition(b"\n")
        self._line = bytearray(rest)
        if not (self._kept or self._keep_text or b"result" in block):
            return
        if b"{" in block:
            for line in block.split(b"\n"):
                self._take(line)
        else:  # plain text, and perhaps millions of lines of it
            self._together.append(decode(block).replace("\r\n", "\n").removesuffix("\r"))
        self._pass_text()

    def close(self) -> None:
        """No more comes: a line without its end is one all the same."""
        if self._line:
            self.feed(b"\n")

    @property
    def answer(self) -> Result | None:
        """The outcome that the last `result` line so far tells, if there was one."""
        return None if self._last is None else result_of(self._last)

    @property
    def text(self) -> str:
        """All that was no event, where it is kept."""
        return self._text.getvalue().removesuffix("\n")

    def _take(self, line: bytes) -> None:
        fields = self._fields(line)
        if fields is None:
            self._together.append(decode(line).removesuffix("\r"))
        elif _is_result(fields):
            self._last = fields
        else:
            self._pass_text()
            self._pass(_type_of(fields.pop("type", None)), fields)

    def _fields(self, line: bytes) -> dict[str, Any] | None:
        """The object that the line is. Once no event is kept any more, only a line that may be the result is parsed."""
        if not line.lstrip().startswith(b"{"):
            return None
        if not self._kept and b"result" not in line:
            return {}
        return parse_object(decode(line))

    def _pass_text(self) -> None:
        if not self._together:
            return
        text = "\n".join(self._together)
        self._together.clear()
        if self._keep_text:
            self._text.write(text + "\n")
        if text.strip():
            self._pass("text", {"text": text})

    def _pass(self, kind: str, data: dict[str, Any]) -> None:
        if self._kept:
            self._kept = self._emit(kind, data)


def _is_result(fields: dict[str, Any]) -> bool:
    return fields.get("type") == "result" and (isinstance(fields.get("response"), str) or fields.get("status") in FAILED)


def _type_of(value: object) -> str:
    return value[:MAX_TYPE_CHARACTERS] if isinstance(value, str) and value else "message"
