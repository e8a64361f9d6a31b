"""One call of a tool: it is begun on a thread, may wait without one, and always has an answer."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from core.asgi import Answer, Hold, problem_answer, rendered
from core.threads import Threads
from core.waiters import Waiters
from fleet import access
from fleet.principals import Principal

from .catalogue import Tool


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a tool answers: the body that REST would have sent, a problem where it is refused."""

    body: dict[str, Any]
    #: The same as JSON.
    text: str
    refused: bool
    #: An earlier call with the same idempotency key made the execution.
    replayed: bool

    @classmethod
    def of(cls, answer: Answer) -> "Result":
        """`answer` as a result; what REST says in `Retry-After` is a member here. On a thread: some are megabytes long."""
        text, after = answer.body.decode(), answer.headers.get("Retry-After")
        if after is not None:
            text = json.dumps(json.loads(text) | {"retry_after": int(after)})
        return cls(
            body=json.loads(text),
            text=text,
            refused=answer.status >= HTTPStatus.BAD_REQUEST,
            replayed="Idempotent-Replayed" in answer.headers,
        )


class Calls:
    """Makes calls on a web process's threads, and lets those that must wait do so with its waiters."""

    def __init__(self, *, threads: Threads, waiters: Waiters) -> None:
        self._threads = threads
        self._waiters = waiters

    async def call(self, tool: Tool, *, principal: Principal, arguments: Mapping[str, Any], gone: asyncio.Future[None]) -> Result | None:
        """The tool's result; None where the caller hung up while it waited, which changes nothing else."""
        begun = await self._threads.query(begin, tool, principal, arguments)
        if isinstance(begun, Result):
            return begun
        timed_out = await self._wait(begun, gone)
        return None if gone.done() else await self._threads.query(end, begun, timed_out=timed_out)

    async def _wait(self, hold: Hold, gone: asyncio.Future[None]) -> bool:
        """Whether the wait ended before what was waited for."""
        finished = self._waiters.join(hold.key)
        ends: set[asyncio.Future[Any]] = {finished, gone}
        try:
            await asyncio.wait(ends, timeout=hold.seconds, return_when=asyncio.FIRST_COMPLETED)
            return not (finished.done() and finished.result())
        finally:
            self._waiters.leave(hold.key, finished)


def begin(tool: Tool, principal: Principal, arguments: Mapping[str, Any]) -> Result | Hold:
    """The tool's result, the problem that stands in its way, or what it waits for; on a thread of the pool."""
    try:
        if tool.personal:
            access.require_person(principal)
        answer = tool.run(principal, arguments)
    except Exception as error:  # noqa: BLE001 - the caller is to be told; what is unforeseen gets logged where it is translated
        answer = problem_answer(error)
    return answer if isinstance(answer, Hold) else Result.of(answer)


def end(hold: Hold, *, timed_out: bool) -> Result:
    """The result of a call that has waited; on a thread of the pool."""
    return Result.of(rendered(hold, timed_out))
