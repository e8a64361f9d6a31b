"""Every rule left out: a switch of the actors, or a change to the text of a script."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from capacity import slots
from core.redis import Script

from .rules import Rules
from .schedule import CALM, FAULTY, Faults


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """What is left out: a rule or two, a piece of a script's text (`{script: (old, new)}`); and the schedules that show it.

    `seeds` are known to show it; should the model change, others are looked for.
    """

    name: str
    faults: Faults
    seeds: tuple[int, ...] = ()
    off: tuple[str, ...] = ()
    lua: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    http: bool | None = None
    crowded: bool = False

    @property
    def rules(self) -> Rules:
        """The protocol without it."""
        return replace(Rules(), **dict.fromkeys(self.off, False))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The scripts without it."""
        real = dict(slots.SCRIPTS)
        try:
            for script, (old, new) in self.lua.items():
                slots.SCRIPTS[script] = _changed(real[script], old, new)
            yield
        finally:
            slots.SCRIPTS.update(real)


def _changed(real: Script, old: str, new: str) -> Script:
    assert real.text.count(old) == 1, f"{real.name}.lua no longer says {old!r} once"
    changed = Script(real.path)
    changed.text = real.text.replace(old, new)
    return changed


STEERED = Faults(steering=4)
IN_PLACE = ("in place",)
FLUSHED = Faults(flush=5)
#: Leases end, and repair is at hand.
LAPSING = Faults(lapse=4, repair=4)
#: Leases end, and repair is slow.
LAPSED = Faults(lapse=6, repair=1)
REPAIRED = Faults(repair=5)

_READ = "local all, count = read_holders(holders_key)\n"
_READ_AND_DROP = f"""{_READ}
for other in pairs(all) do
  if tonumber(redis.call('ZSCORE', leases_key, name .. ':' .. other) or 0) < clock() then
    erase_holder(slots_key, holders_key, slot_key, leases_key, name, other)
    all[other], count = nil, count - 1
  end
end
"""
_MARK = "redis.call('HSET', holders_prefix .. name, id, pack(token, 'lost', number, hard, started))"
_FREE = "erase_holder('agent:slots:' .. name, holders_prefix .. name, 'agent:slot:' .. name .. ':' .. id, leases_key, name, id)"
_CLOSED = "if not is_open(epoch_key) then return {REBUILDING, 0, '0'} end"
_FENCED = "if not may_rebuild(epoch_key, rebuild_key, nonce, expiry_ms) then return 0 end"
_ANY_EPOCH = ("1, true) ~= nil", "1, true) ~= nil or epoch ~= nil")


def rule(*off: str, faults: Faults, seeds: tuple[int, ...] = (), http: bool | None = None, crowded: bool = False) -> Mutation:
    """A rule of the actors."""
    return Mutation(name=" and ".join(off), off=off, faults=faults, seeds=seeds, http=http, crowded=crowded)


def script(
    name: str, faults: Faults, lua: Mapping[str, tuple[str, str]], seeds: tuple[int, ...] = (), http: bool | None = None
) -> Mutation:
    """A rule that a script keeps."""
    return Mutation(name=name, faults=faults, lua=lua, seeds=seeds, http=http)


MUTATIONS = (
    # Take
    rule("no_barging", faults=CALM),
    rule("line_order", faults=CALM),
    rule("busy_left_alone", faults=FAULTY),
    rule("claim_lost_frees_own_token", faults=replace(STEERED, ways=IN_PLACE)),
    rule("claim_needs_queued", faults=STEERED),
    rule("claim_lost_twice_skips_row", "newcomer_holds_session_back", faults=Faults(steering=10), crowded=True),
    # Sessions
    rule("one_run_a_session", faults=CALM, crowded=True),
    rule("next_of_session_startable", faults=CALM),
    # Start
    rule("renewal_before_row", faults=FLUSHED),
    rule("renewal_before_row", "rebuild_requeues_unstarted", faults=FLUSHED),
    rule("rebuild_requeues_unstarted", faults=FLUSHED),
    rule("rebuild_reads_after_requeue", faults=FLUSHED),
    rule("start_needs_token", faults=FLUSHED),
    rule("refused_start_undone", faults=FLUSHED),
    rule("undo_needs_token", faults=FLUSHED),
    rule("lease_checked_before_work", faults=LAPSING, http=False),
    rule("local_work_ends_with_lease", faults=LAPSING, http=False),
    # Give
    rule("finish_fenced", faults=LAPSING),
    rule("row_before_slot", faults=replace(FLUSHED, ways=("release",))),
    rule("release_until_answered", faults=replace(FLUSHED, ways=("release",))),
    rule("drain_after_release", faults=replace(CALM, ways=("release",))),
    # In place
    rule("ungranted_claim_undone", faults=CALM),
    rule("ungranted_not_started", faults=CALM),
    rule("unknown_handover_releases_both", faults=Faults(repeat=True, ways=IN_PLACE)),
    rule("unstarted_handover_released", faults=Faults(steering=10, ways=IN_PLACE)),
    rule("others_start_keeps_slot", faults=replace(REPAIRED, ways=IN_PLACE)),
    rule("undo_drains", faults=Faults(steering=6, ways=IN_PLACE)),
    # Repair
    rule("fence_before_freeing", faults=LAPSING, http=True),
    rule("stop_before_freeing", faults=LAPSING, http=True),
    rule("row_asked_waits", faults=LAPSING, http=False),
    rule("token_kept_until_stopped", faults=Faults(lapse=4, repair=3, flush=2), http=True),
    rule("agent_remembers_terminate", faults=LAPSING, http=True),
    rule("rowless_freed_in_phase", faults=REPAIRED),
    rule("lost_repaired", faults=FAULTY),
    rule("slots_without_row_repaired", faults=FAULTY),
    rule("dispatched_again", faults=FAULTY),
    rule("rebuild_clears", faults=FLUSHED),
    # Steering
    rule("cancel_granted_fenced", faults=STEERED),
    rule("cancel_frees_slot", faults=STEERED),
    rule("raise_drains", faults=STEERED),
    # Scripts
    script("acquire at the limit, too", CALM, {"acquire": ("count < (tonumber(limit_text)", "count <= (tonumber(limit_text)")}),
    script("acquire without the fleet's cap", CALM, {"acquire": ("if fleet_text ~= ''", "if false")}),
    script("acquire the next number, not the lowest free one", CALM, {"acquire": ("number = lowest_free(all)", "number = count + 1")}),
    script("acquire drops holders whose lease has ended", LAPSED, {"acquire": (_READ, _READ_AND_DROP)}, http=True),
    script("acquire while a rebuild is due", FLUSHED, {"acquire": (_CLOSED, "")}),
    script("any epoch will do", FLUSHED, {"acquire": _ANY_EPOCH, "release": _ANY_EPOCH, "handover": _ANY_EPOCH}),
    script("release by id, whatever the token", STEERED, {"release": ("held_token ~= token or", "not held_token or")}),
    script(
        "handover though the one done was not held",
        Faults(repeat=True, steering=4, ways=IN_PLACE),
        {"handover": ("if unpack_holder(all[done_id]) ~= done_token then", "if false then")},
    ),
    script("handover over the limit", STEERED, {"handover": ("count - 1 < (tonumber(limit_text) or 0)", "true")}),
    script("renew brings the lost back", LAPSING, {"renew": ("phase == 'lost'", "false")}),
    script("renew is refused while a rebuild is due", FLUSHED, {"renew": ("or REBUILDING", "or 2")}),
    script("reclaim frees what it lists", LAPSING, {"reclaim": (_MARK, _FREE)}, http=True),
    script(
        "rebuild without a nonce",
        FLUSHED,
        {
            "rebuild_begin": ("if other and other ~= own", "if false"),
            "rebuild_clear": (_FENCED, ""),
            "rebuild_write": (_FENCED, ""),
            "rebuild_open": ("if redis.call('GET', rebuild_key) ~= own then return 0 end", ""),
        },
    ),
)
