"""The headers that say how a submit is to be answered: `Prefer`, `Idempotency-Key`."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from rest_framework.request import Request

from backlog.drafts import IdempotencyRequest
from fleet.principals import Principal

from ..errors import IdempotencyMalformed

LONGEST_KEY = 255
LONGEST_WAIT_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a submit is answered: at once, or with the result; then after `wait_seconds` (None: the usual) at once after all."""

    at_once: bool
    wait_seconds: int | None = None
    #: The preference that was followed, "" for none.
    applied: str = ""


def manner_of(request: Request, *, async_mode: bool | None) -> Manner:
    """The body's `async_mode` where it was sent, else the `Prefer` header, else with the result."""
    if async_mode is not None:
        return Manner(at_once=async_mode)
    preferred = _preferences(request.headers.get("Prefer", ""))
    seconds = _seconds(preferred.get("wait", ""))
    if seconds is not None:
        return Manner(at_once=False, wait_seconds=seconds, applied=f"wait={seconds}")
    if "respond-async" in preferred:
        return Manner(at_once=True, applied="respond-async")
    return Manner(at_once=False)


def _preferences(header: str) -> dict[str, str]:
    """`{name: value}`; of a preference given twice the first counts (RFC 7240)."""
    found: dict[str, str] = {}
    for part in header.split(","):
        name, _, value = part.partition(";")[0].partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"'))
    return found


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
    said = {kind: request.data} if kind else request.data
    return IdempotencyRequest(caller=principal.caller, key=_key(header), body_digest=_digest(said))


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
