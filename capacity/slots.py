"""Slots: the verbs of the gate, each one Lua script.

What these functions answer was true in one step on the server, by its own clock. Every outcome may be `REBUILDING`: the
server lost its keys, or they are of an earlier life; nothing was changed, and the caller rebuilds (`capacity.manager`).
Each raises `SlotsUnavailable` when the server can't be asked.
"""

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

import redis.exceptions

from core.redis import Call, RedisError, Script, client

from . import keys
from .errors import SlotsUnavailable
from .leases import FleetHolder, Holder, Lease, LostHolder, Phase, RenewOutcome

LUA = Path(__file__).parent / "lua"
SCRIPTS = {path.stem: Script(path, prelude=LUA / "common.lua") for path in sorted(LUA.glob("*.lua")) if path.stem != "common"}

#: What every script of the slots reads first.
GATE = (keys.epoch(), keys.versions(), keys.leases())
#: Leases renewed by one run of the script: it must not hold the server up.
RENEW_BATCH = 200
#: A pass of `reclaim` that comes later than this after the last one gives every started run a fresh lease first.
PAUSE_SECONDS = 30
#: How long a rebuild may stand still before another one takes its place.
REBUILD_EXPIRY_MS = 5000
REBUILD_BATCH = 100
CLEAR_BATCH = 1000
PREVIEW_LENGTH = 100


class TakeOutcome(IntEnum):
    """What became of `acquire`."""

    REBUILDING = 0
    ACQUIRED = 1
    HELD = 2
    BUSY = 3
    FULL_AGENT = 4
    FULL_FLEET = 5


class ReleaseOutcome(IntEnum):
    """What became of `release`."""

    REBUILDING = 0
    RELEASED = 1
    ABSENT = 2


class HandoverOutcome(IntEnum):
    """What became of `handover`."""

    REBUILDING = 0
    GRANTED = 1
    RELEASED = 2
    FOREIGN = 3


class ForgetOutcome(IntEnum):
    """What became of `forget`."""

    REBUILDING = 0
    FORGOTTEN = 1
    HELD = 2


class ReclaimOutcome(IntEnum):
    """What became of `reclaim`."""

    REBUILDING = 0
    OK = 1


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The answer of `acquire`; `number` is 0 without a slot, `version` 0 where nothing changed."""

    outcome: TakeOutcome
    number: int
    version: int


@dataclass(frozen=True, kw_only=True)
class Handed:
    """The answer of `handover`; `number` is the following lease's, 0 unless granted."""

    outcome: HandoverOutcome
    number: int
    version: int


@dataclass(frozen=True, kw_only=True)
class Reclaimed:
    """The answer of `reclaim`: every lost holder there is."""

    outcome: ReclaimOutcome
    lost: list[LostHolder]


@dataclass(frozen=True, kw_only=True)
class Held:
    """A started row's slot, to be written back: seconds since it began, seconds left to its hard limit."""

    lease: Lease
    age_seconds: float
    remaining_seconds: float
    preview: str


@dataclass(frozen=True, kw_only=True)
class AgentSlots:
    """One agent's holders, by number, at `version`."""

    name: str
    version: int
    holders: list[Holder]


@dataclass(frozen=True, kw_only=True)
class AgentCount:
    """How many hold a slot of an agent (`active`, the `lost` among them) at `version`."""

    active: int
    lost: int
    version: int


class _Reach:
    """Whether this process failed to reach the store since its last reclaim pass. It can only delay a reclaim."""

    lost = False


class _translated:  # noqa: N801 - used as a statement; a generator would cost each call twice as much
    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RedisError):
            if isinstance(error, redis.exceptions.ConnectionError | redis.exceptions.TimeoutError):
                _Reach.lost = True
            raise SlotsUnavailable(retry_after=2) from error


# -- Take and give ---------------------------------------------------------------------------------------------------
def acquire(*, lease: Lease, limit: int, fleet_limit: int | None, preview: str, announce: bool = False) -> Taken:
    """Take the lowest free slot, leased to its hard limit. `HELD`: this token has it already (`number` says which).

    `BUSY`: the execution holds a slot under another token; leave that row alone. No fleet limit: None. A limit below 1
    is full. `announce`: the line has changed, so the agent's version is stepped also where it is full.
    """
    with _translated():
        code, number, version = SCRIPTS["acquire"](
            keys=[*GATE, *_places(lease)],
            args=[keys.hints(), lease.agent, str(lease.execution_id), str(lease.token), limit, _cap(fleet_limit),
                  lease.timeout_seconds, _cut(preview), int(announce)],
        )  # fmt: skip
    return Taken(outcome=TakeOutcome(code), number=number, version=int(version))


def release(*, lease: Lease, phase: Phase | None = None) -> ReleaseOutcome:
    """Free the slot held under this token; `ABSENT` freed nothing: a double, late or foreign release.

    With `phase` only while it is in that phase: repair frees what it saw, and a worker may have started it since.
    """
    with _translated():
        code = SCRIPTS["release"](
            keys=[*GATE, *_places(lease)],
            args=[keys.hints(), lease.agent, str(lease.execution_id), str(lease.token), phase or ""],
        )
    return ReleaseOutcome(code)


def handover(
    *,
    done: Lease,
    following: Lease,
    limit: int,
    fleet_limit: int | None,
    paused: bool,
    started: bool,
    lease_seconds: int,
    preview: str,
) -> Handed:
    """Free `done`'s slot and give one to `following`, of the same agent, as one step.

    `started`: `following` begins right now, on a lease of `lease_seconds`; else it is granted and waits for a worker.
    `RELEASED`: freed, but nothing granted. `FOREIGN`: `done` was not held under its token, nothing was changed.
    """
    with _translated():
        code, number, version = SCRIPTS["handover"](
            keys=[*GATE, *_places(done), keys.slot(following.agent, following.execution_id)],
            args=[keys.hints(), done.agent, str(done.execution_id), str(done.token), str(following.execution_id),
                  str(following.token), limit, _cap(fleet_limit), int(paused), int(started), lease_seconds,
                  following.timeout_seconds, _cut(preview)],
        )  # fmt: skip
    return Handed(outcome=HandoverOutcome(code), number=number, version=int(version))


def forget(name: str) -> ForgetOutcome:
    """Remove the keys of a deleted agent; `HELD`: a run of it is still to end, only what its slots showed is gone."""
    with _translated():
        code = SCRIPTS["forget"](
            keys=[keys.epoch(), keys.versions(), keys.slots(name), keys.holders(name)], args=[keys.hints(), name, keys.slot(name, "")]
        )
    return ForgetOutcome(code)


# -- Leases ----------------------------------------------------------------------------------------------------------
def renew(*, leases: Sequence[Lease], lease_seconds: int) -> list[RenewOutcome]:
    """Renew all, in one round trip; the first renewal of a granted slot starts its clock. Answers in the order given."""
    with _translated():
        answers = SCRIPTS["renew"].each([_renewal(batch, lease_seconds) for batch in _batches(leases, RENEW_BATCH)])
    return [RenewOutcome(code) for answer in answers for code in answer]


def _renewal(leases: Sequence[Lease], lease_seconds: int) -> Call:
    each_key = [key for lease in leases for key in _places(lease)]
    each_arg = [part for lease in leases for part in (lease.agent, str(lease.execution_id), str(lease.token), lease.timeout_seconds)]
    return [*GATE, *each_key], [keys.hints(), lease_seconds, *each_arg]


def reclaim(*, lease_seconds: int) -> Reclaimed:
    """Mark the holders whose lease ended as lost, and list all lost ones. Frees nothing: their work must be stopped first.

    After a pause of `PAUSE_SECONDS` or half a lease, whichever is shorter, or when this process could not reach the store
    since the last pass, every started run first gets one fresh lease: workers could not renew either.
    """
    out_of_reach = _Reach.lost
    # Short enough to come before a lease ends unrenewed: a store that was frozen carries out what it was sent before, and
    # that pass knows nothing of the time it lay there.
    pause = min(PAUSE_SECONDS, lease_seconds / 2)
    with _translated():
        code, *found = SCRIPTS["reclaim"](
            keys=[*GATE, keys.reclaimed()],
            args=[keys.hints(), keys.HOLDERS, lease_seconds, pause, int(out_of_reach)],
        )
    if code == ReclaimOutcome.OK and out_of_reach:
        _Reach.lost = False
    return Reclaimed(outcome=ReclaimOutcome(code), lost=[_lost_holder(*fields) for fields in _batches(found, 5)])


def note_out_of_reach() -> None:
    """This process found the store out of reach, by another way than these functions."""
    _Reach.lost = True


def _lost_holder(name: bytes, execution_id: bytes, token: bytes, number: int, started: bytes) -> LostHolder:
    return LostHolder(agent=name.decode(), execution_id=_uuid(execution_id), token=_uuid(token), number=number, started=started == b"1")


# -- Rebuild ---------------------------------------------------------------------------------------------------------
# Races closed. Two rebuilders: the second is turned away, or takes over when the first stood still for its nonce's expiry;
# every later step of the first is refused, the removal of keys among them. A flush or a restart midway: the nonce is gone,
# or names another run of the server. Keys of an earlier life (a restart that kept its data): removed before any holder is
# written; no other script writes a slot while the epoch is wrong, so one scan finds them all. The caller puts rows that
# were never started back in line, then reads those to write, both after `rebuild_begin`.
def rebuild_begin(*, nonce: uuid.UUID) -> bool:
    """Begin a rebuild and remove every slot key; False when there is nothing to rebuild or another rebuild is under way."""
    with _translated():
        began = SCRIPTS["rebuild_begin"](keys=[keys.epoch(), keys.rebuild()], args=_fence(nonce))
        return bool(began) and all(_cleared(nonce, batch) for batch in _batches_of(_slot_keys(), CLEAR_BATCH))


def _slot_keys() -> Iterator[str]:
    yield from (keys.leases(), keys.reclaimed())
    for key in client().scan_iter(match="agent:[sh]*", count=1000):
        if key.startswith((keys.SLOTS.encode(), keys.HOLDERS.encode(), keys.SLOT.encode())):
            yield key.decode()


def _cleared(nonce: uuid.UUID, batch: Sequence[str]) -> bool:
    return bool(SCRIPTS["rebuild_clear"](keys=[keys.epoch(), keys.rebuild(), *batch], args=_fence(nonce)))


def rebuild_keep(*, nonce: uuid.UUID) -> bool:
    """Let the nonce live for another expiry; False when it is no longer its turn."""
    with _translated():
        return bool(SCRIPTS["rebuild_write"](keys=[*GATE, keys.rebuild()], args=[*_fence(nonce), 0]))


def rebuild_write(*, nonce: uuid.UUID, holders: Sequence[Held], lease_seconds: int) -> bool:
    """Write started rows' slots back, each with a fresh lease; False when it is no longer this nonce's turn."""
    with _translated():
        return all(SCRIPTS["rebuild_write"].each([_writing(nonce, batch, lease_seconds) for batch in _batches(holders, REBUILD_BATCH)]))


def _writing(nonce: uuid.UUID, holders: Sequence[Held], lease_seconds: int) -> Call:
    each_key = [key for held in holders for key in _places(held.lease)]
    each_arg = [
        part
        for held in holders
        for part in (
            held.lease.agent, str(held.lease.execution_id), str(held.lease.token), held.lease.number or 0,
            held.lease.timeout_seconds, f"{held.age_seconds:.6f}", f"{held.remaining_seconds:.6f}", _cut(held.preview),
        )
    ]  # fmt: skip
    return [*GATE, keys.rebuild(), *each_key], [*_fence(nonce), lease_seconds, *each_arg]


def rebuild_open(*, nonce: uuid.UUID) -> bool:
    """Let slots be granted again; False when it is no longer this nonce's turn."""
    with _translated():
        return bool(SCRIPTS["rebuild_open"](keys=[keys.epoch(), keys.versions(), keys.rebuild()], args=[*_fence(nonce), keys.hints()]))


def _fence(nonce: uuid.UUID) -> list[Any]:
    return [str(nonce), REBUILD_EXPIRY_MS]


# -- Read ------------------------------------------------------------------------------------------------------------
def state(name: str) -> AgentSlots:
    """One agent's holders, by number. Raises `SlotsUnavailable` while a rebuild is due: unknown is not idle."""
    with _translated():
        code, *answer = SCRIPTS["state"](keys=[*GATE, keys.slots(name), keys.holders(name)], args=[name, keys.slot(name, "")])
    _require_open(code)
    version, _, *flat = answer
    holders = [_holder(*fields) for fields in _batches(flat, 5)]
    return AgentSlots(name=name, version=int(version), holders=sorted(holders, key=lambda holder: holder.number))


def _holder(execution_id: bytes, value: bytes, taken: bytes, lease_ends: bytes, preview: bytes) -> Holder:
    token, phase, number, _, _ = value.decode().split()
    return Holder(
        execution_id=_uuid(execution_id),
        number=int(number),
        token=uuid.UUID(token),
        phase=Phase(phase),
        taken_at=_moment(taken),
        message_preview=preview.decode(errors="replace"),
        lease_ends_at=_moment(lease_ends),
    )


def states(names: Sequence[str]) -> dict[str, AgentCount]:
    """The counts of many agents, in one round trip. Raises `SlotsUnavailable` while a rebuild is due."""
    _, *flat = _counts(names)
    counts = (AgentCount(version=int(version), active=active, lost=lost) for version, active, lost in _batches(flat, 3))
    return dict(zip(names, counts, strict=True))


def fleet_count() -> int:
    """How many hold a slot, over all agents. Raises `SlotsUnavailable` while a rebuild is due."""
    return int(_counts(())[0])


def _counts(names: Sequence[str]) -> list[Any]:
    with _translated():
        code, *answer = SCRIPTS["states"](keys=[*GATE, *map(keys.holders, names)], args=[keys.HOLDERS, *names])
    _require_open(code)
    return answer


def holders_of_fleet() -> list[FleetHolder]:
    """Every holder, agent by agent (each agent's at one moment). Raises `SlotsUnavailable` while a rebuild is due."""
    with _translated():
        members: Any = client().zrange(keys.leases(), 0, -1)
        names = sorted({member.partition(b":")[0].decode() for member in members})
        calls: list[Call] = [([*GATE, keys.slots(name), keys.holders(name)], [name, ""]) for name in names]
        answers = SCRIPTS["state"].each(calls)
    if not calls:
        fleet_count()  # no holders, or none known?
    return [holder for name, answer in zip(names, answers, strict=True) for holder in _fleet_holders(name, answer)]


def _fleet_holders(name: str, answer: list[Any]) -> Iterator[FleetHolder]:
    code, *rest = answer
    _require_open(code)
    now = float(rest[1])
    for fields in _batches(rest[2:], 5):
        token, phase, number, _, _ = fields[1].decode().split()
        yield FleetHolder(
            agent=name,
            execution_id=_uuid(fields[0]),
            token=uuid.UUID(token),
            number=int(number),
            phase=Phase(phase),
            age_seconds=now - float(fields[2]),
        )


def step_version(names: Sequence[str]) -> None:
    """Step agents' versions and publish their hints, after a change of backlog or settings was committed."""
    if names:
        with _translated():
            SCRIPTS["step_version"](keys=[keys.versions()], args=[keys.hints(), *names])


# -- Small -----------------------------------------------------------------------------------------------------------
def _places(lease: Lease) -> tuple[str, str, str]:
    return keys.slots(lease.agent), keys.holders(lease.agent), keys.slot(lease.agent, lease.execution_id)


def _cap(limit: int | None) -> int | str:
    return "" if limit is None else limit


def _cut(preview: str) -> bytes:
    return preview[:PREVIEW_LENGTH].encode(errors="replace")


def _require_open(code: int) -> None:
    if not code:
        raise SlotsUnavailable(retry_after=2)


def _uuid(text: bytes) -> uuid.UUID:
    return uuid.UUID(text.decode())


def _moment(text: bytes) -> datetime:
    return datetime.fromtimestamp(float(text), tz=UTC)


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _batches_of(items: Iterator[str], size: int) -> Iterator[list[str]]:
    while batch := list(itertools.islice(items, size)):
        yield batch
