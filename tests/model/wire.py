"""A client for very many small questions to one server: redis-py's own takes several times as long over each as the server.

For campaigns; the tests use the client that the project uses. One socket, one thread, no second tries, no pool.
"""

import socket
from collections.abc import Sequence
from typing import Any, Self

import redis
from redis.commands.core import CoreCommands
from redis.exceptions import NoScriptError, ResponseError

Command = tuple[Any, ...]


def packed(parts: Command) -> bytes:
    """A command as the server reads it."""
    name, *rest = parts
    whole = [*name.split(), *rest] if " " in name else parts  # SCRIPT LOAD is two words
    pieces = [b"*%d\r\n" % len(whole)]
    for part in whole:
        data = part if type(part) is bytes else str(part).encode()
        pieces.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(pieces)


class Wire(redis.Redis):
    """`redis.Redis`, its commands sent straight. Its address is `unix://:{password}@{path}?protocol=2`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """`Redis`'s arguments; it connects at the first command."""
        super().__init__(*args, **kwargs)
        self._socket: socket.socket | None = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """The server's answer; raises its errors."""
        answer = self.answers([args])[0]
        if isinstance(answer, Exception):
            raise answer
        return self.converted(args[0], answer, options)

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> "Batch":  # type: ignore[override]
        """Commands to be sent at once; never a transaction."""
        return Batch(self)

    def converted(self, name: str, answer: Any, options: dict[str, Any]) -> Any:
        """The answer as redis-py gives it."""
        callback = self.response_callbacks.get(name)
        return answer if callback is None else callback(answer, **options)

    def answers(self, commands: Sequence[Command]) -> list[Any]:
        """The raw answers, errors among them."""
        if self._socket is None:
            self._connect()
        assert self._socket is not None
        self._socket.sendall(b"".join(map(packed, commands)))
        return [self._read() for _ in commands]

    def _connect(self) -> None:
        place = self.connection_pool.connection_kwargs
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(10)
        try:
            connected.connect(place["path"])
        except OSError as error:
            raise redis.ConnectionError(str(error)) from error
        self._socket, self._file = connected, connected.makefile("rb", buffering=65536)
        self.execute_command("AUTH", place["password"])

    def _read(self) -> Any:
        line = self._file.readline()
        if not line:
            raise redis.ConnectionError("the server is gone")
        kind, rest = line[:1], line[1:-2]
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        if kind == b"-":
            return (NoScriptError if rest.startswith(b"NOSCRIPT") else ResponseError)(rest.decode())
        return rest


class Batch(CoreCommands):
    """What `Redis.pipeline` is used for here."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._commands: list[tuple[Command, dict[str, Any]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._commands.clear()

    def execute_command(self, *args: Any, **options: Any) -> "Batch":
        """Keep a command for later."""
        self._commands.append((args, options))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send what was kept; every answer, in order."""
        commands, self._commands = self._commands, []
        if not commands:
            return []
        answers = self._wire.answers([command for command, _ in commands])
        for answer in answers:
            if raise_on_error and isinstance(answer, Exception):
                raise answer
        return [
            answer if isinstance(answer, Exception) else self._wire.converted(command[0], answer, options)
            for answer, (command, options) in zip(answers, commands, strict=True)
        ]
