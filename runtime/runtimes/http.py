"""Agents that are HTTP servers with Trinity's agent contract.

`POST {url}/api/task` with every field of the request, null where none was given; one JSON answer.
`POST {url}/api/executions/{id}/terminate` ends a run: 2xx, 404, 409 and 410 all say that it is over.
"""

import asyncio
import enum
import re
import time
from dataclasses import dataclass, replace
from typing import Any

import httpx
import stamina

from core.conf import conf

from .addresses import AddressRefused, pin
from .answers import MAX_ERROR_CHARACTERS, decode, parse_object, usage_of
from .base import Emit, Result, Run, Stop
from .endings import lease_lost, stopped, timed_out
from .loop import CONNECT_SECONDS, WRITE_SECONDS, LoopThread, loop_thread

#: How long after its limit a run may hold its slot while its agent can't be asked.
HARD_LIMIT_SECONDS = 300
#: How much longer than the limit an answer is waited for on the wire: our own limit comes first.
READ_MARGIN_SECONDS = 10
ATTEMPTS = 4
TERMINATE_TIMEOUT = httpx.Timeout(5.0, connect=2.0)
FIRST_ASK_SECONDS, LONGEST_ASK_SECONDS = 0.2, 5.0
#: After so many refusals in a row nobody listens any more.
REFUSALS = 4
MAX_REFUSAL_BYTES = 65_536
OVER_STATUSES = (404, 409, 410)
#: By these words a 503 is about credentials.
AUTH = re.compile(r"authenticat|authoriz|unauthor|oauth|\bauth\b|log(ged)? ?in\b|credential|api key", re.IGNORECASE)

_CONNECTING = (httpx.ConnectError, httpx.ConnectTimeout)
_UNSENDABLE = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError, AddressRefused)


class HttpRuntime:
    """Sends a task to an agent and waits for its answer."""

    def run(self, run: Run, emit: Emit, stop: Stop) -> Result:
        """See `Runtime.run`."""
        if stop.reason is not None:
            return stopped(stop.reason)
        return _Call(thread=loop_thread(), run=run, stop=stop).make()

    def cancel(self, run: Run) -> bool:
        """Ask once to terminate it; whether the agent says that it is over."""
        thread = loop_thread()
        return thread.submit(terminate(thread, run)).result() is Asked.OVER


class Asked(enum.Enum):
    """What came of asking an agent to terminate a run."""

    OVER = "over"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Answer:
    """A status and the body that came with it."""

    status: int
    body: bytes
    too_long: bool = False


class _Call:
    """One task at its agent, from the first attempt to connect until it is known to be over."""

    def __init__(self, *, thread: LoopThread, run: Run, stop: Stop) -> None:
        self._thread = thread
        self._run = run
        self._stop = stop
        self._hard_limit_at = time.monotonic() + run.timeout_seconds + HARD_LIMIT_SECONDS
        self._sent = self._answered = False

    def make(self) -> Result:
        """The outcome; waits for it outside the loop."""
        outcome = self._thread.submit(self._carry()).result()
        return outcome if isinstance(outcome, Result) else result_of(outcome)

    async def _carry(self) -> Answer | Result:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            loop.call_soon_threadsafe(told.set)

        self._stop.on_set(tell)
        sending = asyncio.create_task(self._send())
        telling = asyncio.create_task(told.wait())
        try:
            await asyncio.wait({sending, telling}, timeout=self._run.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() and not self._sent:
                await _drop(sending)
            outcome = self._own_outcome() if sending.cancelled() or not sending.done() else sending.result()
            if isinstance(outcome, Result) and self._sent and not self._answered and not await self._end(sending):
                return replace(outcome, error=f"{outcome.error}. The agent did not confirm that its work is over")
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
            return Result(error_code="agent_error", error=f"The connection broke before the answer was complete: {_sentence(error)}")
        raise AssertionError("retry_context ends by a return or an exception")

    async def _post(self) -> Answer:
        run = self._run
        request = self._thread.client().build_request(
            "POST",
            address(run, "/api/task"),
            json=body_of(run),
            headers=headers_of(run),
            timeout=httpx.Timeout(WRITE_SECONDS, connect=CONNECT_SECONDS, read=run.timeout_seconds + READ_MARGIN_SECONDS),
            extensions={"trace": self._trace},
        )
        answer = await exchange(self._thread, request)
        self._answered = True
        return answer

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self._sent = True

    async def _end(self, sending: "asyncio.Task[Answer | Result]") -> bool:
        """Ask until the work is known to be over; False at the hard limit.

        The agent's word proves it, and so does an answer to the call itself. So do a broken call and a closed port
        together: the process that had the work is gone.
        """
        pause, refusals = FIRST_ASK_SECONDS, 0
        while time.monotonic() < self._hard_limit_at:
            asked = await terminate(self._thread, self._run)
            refusals = refusals + 1 if asked is Asked.REFUSED and sending.done() else 0
            if asked is Asked.OVER or self._answered or refusals >= REFUSALS:
                return True
            await (asyncio.sleep(pause) if sending.done() else asyncio.wait({sending}, timeout=pause))
            if self._answered:
                return True
            pause = min(2 * pause, LONGEST_ASK_SECONDS)
        return False


async def terminate(thread: LoopThread, run: Run) -> Asked:
    """Ask the agent once to end `run`; from then on it refuses to begin it as well."""
    try:
        request = thread.client().build_request(
            "POST", address(run, f"/api/executions/{run.execution_id}/terminate"), headers=headers_of(run), timeout=TERMINATE_TIMEOUT
        )
        status = (await exchange(thread, request)).status
    except httpx.ConnectError as error:
        return Asked.REFUSED if _is_refusal(error) else Asked.UNKNOWN
    except (httpx.HTTPError, *_UNSENDABLE):
        return Asked.UNKNOWN
    return Asked.OVER if 200 <= status < 300 or status in OVER_STATUSES else Asked.UNKNOWN


async def exchange(thread: LoopThread, request: httpx.Request) -> Answer:
    """Send `request` and read its bounded answer; of one that isn't 200 only as much as an error needs."""
    if not conf.allow_private_addresses:
        await pin(request)
    response = await thread.client().send(request, stream=True)
    try:
        limit = conf.max_output_bytes if response.status_code == 200 else MAX_REFUSAL_BYTES
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > limit:
                return Answer(response.status_code, bytes(body[:limit]), too_long=True)
        return Answer(response.status_code, bytes(body))
    finally:
        await response.aclose()


def address(run: Run, path: str) -> str:
    """The agent's address of `path`."""
    return str(run.settings["url"]).rstrip("/") + path


def headers_of(run: Run) -> dict[str, str]:
    """The agent's own headers over ours."""
    own = {str(name): str(value) for name, value in (run.settings.get("headers") or {}).items()}
    return {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "Trinity"} | own


def body_of(run: Run) -> dict[str, Any]:
    """The request as the agent gets it: always every field."""
    return {
        "message": run.message,
        "model": run.model or None,
        "allowed_tools": run.allowed_tools,
        "system_prompt": run.system_prompt or None,
        "timeout_seconds": run.timeout_seconds,
        "max_turns": run.max_turns,
        "execution_id": str(run.execution_id),
        "session_id": str(run.session_id) if run.session_id else None,
        "metadata": run.metadata,
    }


def result_of(answer: Answer) -> Result:
    """The outcome that an answer stands for."""
    if answer.status != 200:
        return refusal_of(answer)
    if answer.too_long:
        return Result(error_code="agent_error", error=f"The agent's answer exceeded {len(answer.body)} bytes")
    fields = parse_object(decode(answer.body))
    if fields is None:
        return Result(error_code="agent_error", error="The agent's answer is not a JSON object")
    if not isinstance(fields.get("response"), str):
        return Result(error_code="agent_error", error="The agent's answer has no response")
    return Result(response=fields["response"], usage=usage_of(fields.get("metadata")))


def refusal_of(answer: Answer) -> Result:
    """The outcome of an answer that isn't 200."""
    text = decode(answer.body)
    code = {401: "agent_auth", 403: "agent_auth", 429: "agent_rate_limited", 504: "timeout"}.get(answer.status, "agent_error")
    if answer.status == 503 and AUTH.search(text):
        code = "agent_auth"
    fields = parse_object(text) or {}
    said = next((fields[name] for name in ("detail", "error", "message") if isinstance(fields.get(name), str)), text).strip()
    sentence = f"The agent answered {answer.status}"
    return Result(error_code=code, error=(f"{sentence}: {said}" if said else sentence)[:MAX_ERROR_CHARACTERS])


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
