"""Agents that are HTTP servers with Trinity's agent contract.

`POST {url}/api/task` with every field of the request, null where none was given; one JSON answer, or a stream of events.
`POST {url}/api/executions/{id}/terminate` ends a run: 2xx, 404, 409 and 410 all say that it is over.
"""

import asyncio
import contextlib
import enum
import time
from dataclasses import replace
from typing import Any

import httpx
import stamina

from core.conf import conf

from .addresses import AddressRefused, pin
from .base import Emit, Result, Run, Stop, StopReason
from .contract import Answer, address, body_of, headers_of, is_plain, is_stream, may_go_on, outcome_of, refusal_of, says_over
from .endings import lease_lost, stopped, timed_out
from .handoff import Handoff
from .loop import CONNECT_SECONDS, WRITE_SECONDS, LoopThread, loop_thread
from .output import Output

#: How long after its limit a cancelled run may hold its slot while its agent can't be asked.
HARD_LIMIT_SECONDS = 300
#: How long any other run waits for its agent's word that the work is over. Then its outcome is told and its slot waits on.
CONFIRM_SECONDS = 5.0
#: How much longer than the limit an answer is waited for on the wire: our own limit comes first.
READ_MARGIN_SECONDS = 10
ATTEMPTS = 4
#: One attempt to terminate, all of it: an agent that dribbles its answer gains no more time than a silent one.
TERMINATE_SECONDS = 6.0
TERMINATE_TIMEOUT = httpx.Timeout(5.0, connect=2.0)
FIRST_ASK_SECONDS, LONGEST_ASK_SECONDS = 0.2, 5.0
#: After so many refusals in a row nobody listens any more.
REFUSALS = 4
#: Of an answer that isn't 200 only as much, and for as long, as its error needs.
MAX_REFUSAL_BYTES, REFUSAL_SECONDS = 65_536, 5.0

_CONNECTING = (httpx.ConnectError, httpx.ConnectTimeout)
_UNSENDABLE = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError, AddressRefused)


class HttpRuntime:
    """Sends a task to an agent and waits for its answer."""

    def run(self, run: Run, emit: Emit, stop: Stop) -> Result:
        """See `Runtime.run`."""
        if stop.reason is not None:
            return stopped(stop.reason)
        return _Call(thread=loop_thread(), run=run, emit=emit, stop=stop).make()

    def cancel(self, run: Run) -> bool:
        """Ask once to terminate it; whether the agent says that it is over."""
        thread = loop_thread()
        return thread.submit(terminate(thread, run)).result() is Asked.OVER


class Asked(enum.Enum):
    """What came of asking an agent to terminate a run."""

    OVER = "over"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class _Call:
    """One task at its agent, from the first attempt to connect until it is known to be over.

    The loop only waits and receives. What a stream says is parsed in the run's own thread, which has nothing else to do.
    """

    def __init__(self, *, thread: LoopThread, run: Run, emit: Emit, stop: Stop) -> None:
        self._thread = thread
        self._run = run
        self._stop = stop
        self._hard_limit_at = time.monotonic() + run.timeout_seconds + HARD_LIMIT_SECONDS
        self._told = asyncio.Event()
        self._parts = Handoff(thread.loop)
        self._output = Output(emit, keep_text=False)
        self._sent = self._answered = self._streamed = self._broke = False

    def make(self) -> Result:
        """The outcome; waits for it outside the loop."""
        carried = self._thread.submit(self._carry())
        carried.add_done_callback(lambda _: self._parts.end())
        try:
            self._listen()
        finally:
            outcome = carried.result()
        if isinstance(outcome, Answer):
            return self._outcome_of_stream() if self._streamed else outcome_of(outcome)
        if self._broke and outcome.error_code == "agent_error" and self._output.answer:
            # What it had to say it has said.
            return replace(self._output.answer, over=outcome.over)
        return outcome

    def _listen(self) -> None:
        """Take the stream's events as they come, until there are no more."""
        try:
            for part in self._parts:
                self._output.feed(part)
        except BaseException:
            self._tell()
            for _ in self._parts:
                pass
            raise

    def _outcome_of_stream(self) -> Result:
        """The outcome of a stream that came to its end."""
        self._output.close()
        if self._output.answer is not None:
            return self._output.answer
        # Nobody said that the work is over.
        nothing = Result(error_code="agent_error", error="The agent's stream ended without a result")
        return self._thread.submit(self._settled(nothing, sending=None)).result()

    def _tell(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._told.set)

    async def _carry(self) -> Answer | Result:
        self._stop.on_set(self._tell)
        sending = asyncio.create_task(self._send())
        telling = asyncio.create_task(self._told.wait())
        try:
            await asyncio.wait({sending, telling}, timeout=self._run.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() and not self._sent:
                await _drop(sending)
            outcome = self._own_outcome() if sending.cancelled() or not sending.done() else sending.result()
            if isinstance(outcome, Result) and self._sent and not self._answered:
                return await self._settled(outcome, sending=sending)
            return outcome
        finally:
            await _drop(telling)
            await _drop(sending)

    def _own_outcome(self) -> Result:
        """Why we didn't wait for the agent's."""
        return timed_out(self._run) if self._stop.reason is None else stopped(self._stop.reason)

    async def _send(self) -> Answer | Result:
        """The agent's answer, or what became of the attempt to get one."""
        try:
            async for attempt in stamina.retry_context(on=_CONNECTING, attempts=ATTEMPTS, timeout=None, wait_initial=0.2, wait_max=2.0):
                with attempt:
                    if not self._stop.lease_holds():
                        return lease_lost()
                    return await self._post()
        except _CONNECTING as error:
            return Result(error_code="agent_unreachable", error=f"The agent could not be reached: {_sentence(error)}")
        except _UNSENDABLE as error:
            self._sent = False
            return Result(error_code="agent_unreachable", error=f"The request could not be sent: {_sentence(error)}")
        except httpx.HTTPError as error:
            self._broke = True
            return Result(error_code="agent_error", error=f"The connection broke before the answer was complete: {_sentence(error)}")
        raise AssertionError("retry_context ends by a return or an exception")

    async def _post(self) -> Answer | Result:
        run = self._run
        request = self._thread.client().build_request(
            "POST",
            address(run, "/api/task"),
            json=body_of(run),
            headers=headers_of(run),
            timeout=httpx.Timeout(WRITE_SECONDS, connect=CONNECT_SECONDS, read=run.timeout_seconds + READ_MARGIN_SECONDS),
            extensions={"trace": self._trace},
        )
        response = await send(self._thread, request)
        try:
            return await self._receive(response)
        finally:
            await response.aclose()

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self._sent = True

    async def _receive(self, response: httpx.Response) -> Answer | Result:
        if response.status_code == 200 and not is_plain(response):
            return Result(error_code="agent_error", error="The agent's answer is compressed, which it was not asked to be")
        if response.status_code == 200 and is_stream(response):
            return await self._follow(response)
        answer = await read(response)
        if may_go_on(answer.status):
            return refusal_of(answer)
        self._answered = True
        return answer

    async def _follow(self, response: httpx.Response) -> Answer | Result:
        """Pass a stream on to the run's thread; its end is told as an answer without a body."""
        left = limit = conf.max_output_bytes
        self._streamed = True
        async for part in response.aiter_raw():
            left -= len(part)
            if left < 0:
                return Result(error_code="agent_error", error=f"The agent's answer exceeded {limit} bytes")
            await self._parts.put(part)
        return Answer(response.status_code)

    async def _settled(self, outcome: Result, *, sending: "asyncio.Task[Answer | Result] | None") -> Result:
        """`outcome`, once the work is known to be over, or as one of work that may go on."""
        is_cancel = outcome.error_code == StopReason.CANCELLED
        give_up_at = self._hard_limit_at if is_cancel else min(self._hard_limit_at, time.monotonic() + CONFIRM_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, give_up_at - time.monotonic())):
                await self._end(sending)
                return outcome
        unconfirmed = f"{outcome.error}. The agent did not confirm that its work is over"
        return replace(outcome, error=unconfirmed, over=time.monotonic() >= self._hard_limit_at)

    async def _end(self, sending: "asyncio.Task[Answer | Result] | None") -> None:
        """Ask until the work is known to be over.

        The agent's word proves it, and so does an answer to the call itself. So do a broken call and a closed port
        together: the process that had the work is gone.
        """
        pause, refusals = FIRST_ASK_SECONDS, 0
        while not self._answered:
            asked = await terminate(self._thread, self._run)
            waiting = sending is not None and not sending.done()
            refusals = refusals + 1 if asked is Asked.REFUSED and not waiting else 0
            if asked is Asked.OVER or refusals >= REFUSALS:
                return
            await (asyncio.wait({sending}, timeout=pause) if sending and waiting else asyncio.sleep(pause))
            pause = min(2 * pause, LONGEST_ASK_SECONDS)


async def terminate(thread: LoopThread, run: Run) -> Asked:
    """Ask the agent once to end `run`; from then on it refuses to begin it as well."""
    try:
        request = thread.client().build_request(
            "POST", address(run, f"/api/executions/{run.execution_id}/terminate"), headers=headers_of(run), timeout=TERMINATE_TIMEOUT
        )
        async with asyncio.timeout(TERMINATE_SECONDS):
            response = await send(thread, request)
            await response.aclose()
    except httpx.ConnectError as error:
        return Asked.REFUSED if _is_refusal(error) else Asked.UNKNOWN
    except (httpx.HTTPError, TimeoutError, *_UNSENDABLE):
        return Asked.UNKNOWN
    return Asked.OVER if says_over(response.status_code) else Asked.UNKNOWN


async def send(thread: LoopThread, request: httpx.Request) -> httpx.Response:
    """Send `request`; the answer's body is yet to be read, and the answer to be closed."""
    if not conf.allow_private_addresses:
        await pin(request)
    return await thread.client().send(request, stream=True)


async def read(response: httpx.Response) -> Answer:
    """The bounded answer; of one that isn't 200 only as much as an error needs."""
    is_refusal = response.status_code != 200
    limit = MAX_REFUSAL_BYTES if is_refusal else conf.max_output_bytes
    body = bytearray()
    try:
        async with asyncio.timeout(REFUSAL_SECONDS if is_refusal else None):
            async for part in response.aiter_raw():
                body += part
                if len(body) > limit:
                    return Answer(response.status_code, bytes(body[:limit]), too_long=True)
                await asyncio.sleep(0)  # a body in a million parts must not keep the loop to itself
    except (httpx.HTTPError, TimeoutError):
        if not is_refusal:
            raise
    return Answer(response.status_code, bytes(body))


async def _drop(task: "asyncio.Task[Any]") -> None:
    """Cancel `task` and wait until it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _sentence(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _is_refusal(error: BaseException | None) -> bool:
    """Whether nobody listened at any of the addresses that were tried."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_refusal(part) for part in error.exceptions)
    return isinstance(error, ConnectionRefusedError) or (error is not None and _is_refusal(error.__cause__ or error.__context__))
