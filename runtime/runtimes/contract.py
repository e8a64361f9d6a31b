"""The contract with an HTTP agent, without the wire: what it is sent, and what its answers mean. `docs/agents.md` tells it in full."""

import re
from dataclasses import dataclass
from typing import Any

import httpx

from .answers import MAX_ERROR_CHARACTERS, decode, parse_object, result_of
from .base import Result, Run

#: Both mean a JSON object on each line.
STREAMS = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
#: A run that was told to end is over by any of these: it ended now, was unknown, has ended before, or is gone.
OVER_STATUSES = (404, 409, 410)
#: By these words a 503 is about credentials.
AUTH = re.compile(r"authenticat|authoriz|unauthor|oauth|\bauth\b|log(ged)? ?in\b|credential|api key", re.IGNORECASE)
#: By these somebody else has answered, or said that the end is yet to come: a gateway that waited too long (524 is one's own
#: number for it), or whoever took the task and works on it.
UNDECIDED = (202, 504, 524)
CODES = {401: "agent_auth", 403: "agent_auth", 429: "agent_rate_limited", 504: "timeout", 524: "timeout"}


@dataclass(frozen=True)
class Answer:
    """A status and the body that came with it."""

    status: int
    body: bytes = b""
    too_long: bool = False


def address(run: Run, path: str) -> str:
    """The agent's address of `path`."""
    return str(run.settings["url"]).rstrip("/") + path


def headers_of(run: Run) -> dict[str, str]:
    """The agent's own headers over ours."""
    own = {str(name): str(value) for name, value in (run.settings.get("headers") or {}).items()}
    return {"Accept": "application/json, application/x-ndjson", "Accept-Encoding": "identity", "User-Agent": "Trinity"} | own


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


def is_stream(response: httpx.Response) -> bool:
    """Whether the answer is a stream of events."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() in STREAMS


def is_plain(response: httpx.Response) -> bool:
    """Whether the answer's bytes are what they seem: a packed one was not asked for, and may unpack to any size."""
    return response.headers.get("content-encoding", "identity").strip().lower() in {"identity", ""}


def says_over(status: int) -> bool:
    """Whether this answer to a terminate says that the run is over."""
    return 200 <= status < 300 or status in OVER_STATUSES


def may_go_on(status: int) -> bool:
    """Whether this answer to a task leaves open that its work goes on."""
    return status in UNDECIDED


def outcome_of(answer: Answer) -> Result:
    """The outcome that an answer stands for."""
    if answer.status != 200:
        return refusal_of(answer)
    if answer.too_long:
        return Result(error_code="agent_error", error=f"The agent's answer exceeded {len(answer.body)} bytes")
    fields = parse_object(decode(answer.body))
    return Result(error_code="agent_error", error="The agent's answer is not a JSON object") if fields is None else result_of(fields)


def refusal_of(answer: Answer) -> Result:
    """The outcome of an answer that isn't 200."""
    text = decode(answer.body)
    code = CODES.get(answer.status, "agent_error")
    if answer.status == 503 and AUTH.search(text):
        code = "agent_auth"
    fields = parse_object(text) or {}
    said = next((fields[name] for name in ("detail", "error", "message") if isinstance(fields.get(name), str)), text).strip()
    sentence = f"The agent answered {answer.status}"
    return Result(error_code=code, error=(f"{sentence}: {said}" if said else sentence)[:MAX_ERROR_CHARACTERS])
