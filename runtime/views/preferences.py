"""The headers that say how a submit is to be answered: `Prefer`, `Idempotency-Key`."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from rest_framework.request import Request

from backlog.drafts import IdempotencyRequest
from fleet.principals import Principal

from ..errors import IdempotencyMalformed

LONGEST_KEY = 255
LONGEST_WAIT_SECONDS = 600
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a submit is answered: at once, or with the result; then after `wait_seconds` (None: the usual) at once after all."""

    at_once: bool
    wait_seconds: int | None = None
    #: Whether it would wait in line rather than be refused, where the body doesn't say.
    queues: bool = False
    #: The preference that was followed, "" for none.
    applied: str = ""


def manner_of(request: Request, *, async_mode: bool | None) -> Manner:
    """The body's `async_mode` where it was sent, else the `Prefer` header, else with the result.

    `respond-async, wait=N` is a call that is at ease with an answer that comes later, and gets the result if it is there in time.
    """
    if async_mode is not None:
        return Manner(at_once=async_mode, queues=async_mode)
    preferred = _preferences(request.headers.get("Prefer", ""))
    seconds, later = _seconds(preferred.get("wait", "")), preferred.get("respond-async") == ""
    applied = ", ".join(["respond-async"] * later + [f"wait={seconds}"] * (seconds is not None))
    return Manner(at_once=later and seconds is None, wait_seconds=seconds, queues=later, applied=applied)


def _preferences(header: str) -> dict[str, str]:
    """`{name: value}`; of a preference given twice the first counts, and what is malformed is none (RFC 7240)."""
    found: dict[str, str] = {}
    for part in _split(header, ","):
        # What follows a semicolon belongs to preferences that are not known here.
        name, _, value = (piece.strip(" \t") for piece in _split(part, ";")[0].partition("="))
        word = _QUOTED.fullmatch(value)
        if _TOKEN.fullmatch(name) and (word or not value or _TOKEN.fullmatch(value)):
            found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", word[1]) if word else value)
    return found


def _split(text: str, separator: str) -> list[str]:
    """The pieces of `text` between separators that are not inside quotes. In one go: a header is as long as its sender likes."""
    pieces, begin, quoted, escaped = [], 0, False, False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif quoted and character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == separator and not quoted:
            pieces.append(text[begin:at])
            begin = at + 1
    return [*pieces, text[begin:]]


def _seconds(text: str) -> int | None:
    """The wait asked for; one that can't be followed is no preference, as RFC 7240 has it."""
    plain = text.isascii() and text.isdigit() and len(text) <= len(str(LONGEST_WAIT_SECONDS))
    return int(text) if plain and 1 <= int(text) <= LONGEST_WAIT_SECONDS else None


def idempotency_of(request: Request, *, principal: Principal, kind: str = "") -> IdempotencyRequest | None:
    """The caller's key with the digest of the body as sent; raises `IdempotencyMalformed`.

    `kind`: what is asked for, where it isn't a task: the same body means something else there.
    """
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    return idempotency_with(header, principal=principal, said={kind: request.data} if kind else request.data)


def idempotency_with(key: str, *, principal: Principal, said: Any) -> IdempotencyRequest:
    """The caller's `key`, bare or quoted, with the digest of what they `said`; raises `IdempotencyMalformed`."""
    return IdempotencyRequest(caller=principal.caller, key=_key(key), body_digest=_digest(said))


def _key(header: str) -> str:
    bare = header.strip(" \t")
    if bare.startswith('"'):
        bare = bare[1:-1] if len(bare) > 1 and bare.endswith('"') else ""
    if not 1 <= len(bare) <= LONGEST_KEY or not all("!" <= character <= "~" for character in bare):
        raise IdempotencyMalformed
    return bare


def _digest(body: Any) -> str:
    """The same for bodies that say the same: neither the order of keys nor white space counts."""
    canonical = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
