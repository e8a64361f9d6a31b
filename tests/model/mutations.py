"""Every rule left out: a switch of the actors, or a change to the text of a script."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from capacity import slots
from core.redis import Script

from . import scenes
from .rules import Rules
from .scenes import Told
from .schedule import CALM, FAULTY, Faults


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """What is left out: a rule or two, a piece of a script's text (`{script: (old, new)}`); and what shows it.

    Either a scene (with the limit it begins with), or random schedules with `faults`. `seeds` are known to show it; should
    the model change, others are looked for.
    """

    name: str
    off: tuple[str, ...] = ()
    lua: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    scene: Told | None = None
    limit: int = 1
    faults: Faults = CALM
    seeds: tuple[int, ...] = ()
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


def rule(*off: str, faults: Faults, seeds: tuple[int, ...] = (), crowded: bool = False) -> Mutation:
    """A rule of the actors, shown by random schedules."""
    return Mutation(name=" and ".join(off), off=off, faults=faults, seeds=seeds, crowded=crowded)


def told(*off: str, scene: Told, limit: int = 1) -> Mutation:
    """A rule of the actors, shown by a scene."""
    return Mutation(name=" and ".join(off), off=off, scene=scene, limit=limit)


STEERED = Faults(steering=4)
FLUSHED = Faults(flush=4, repair=4)
LAPSING = Faults(crash=2, lapse=4, repair=3)

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
_NO_NONCE = {
    "rebuild_begin": ("if other and other ~= own", "if false"),
    "rebuild_clear": (_FENCED, ""),
    "rebuild_write": (_FENCED, ""),
    "rebuild_open": ("if redis.call('GET', rebuild_key) ~= own then return 0 end", ""),
}

MUTATIONS = (
    # Take
    rule("no_barging", faults=CALM, seeds=(43,)),
    rule("line_order", faults=CALM),
    rule("busy_left_alone", faults=FAULTY),
    told("claim_lost_frees_own_token", scene=scenes.a_drain_is_frozen_and_its_row_runs_meanwhile),
    rule("claim_needs_queued", faults=STEERED),
    rule("front_first", faults=STEERED),
    rule("depth_checked_in_line", faults=STEERED),
    rule("drain_looks_each_time", faults=STEERED),
    # Pause
    rule("pause_stops_drain", faults=STEERED),
    rule("newcomer_waits_while_paused", faults=STEERED),
    rule("fleet_pause_read", faults=STEERED),
    rule("in_place_asks_pause", faults=replace(STEERED, ways=("in place",)), seeds=(580,)),
    rule("resume_drains", faults=STEERED, seeds=(58,)),
    # Sessions
    told("newcomer_asks_session_again", scene=scenes.a_newcomers_session_gets_a_row_in_line_meanwhile),
    rule("session_by_age", faults=CALM, crowded=True),
    told(
        "newcomer_asks_session_again",
        "claim_lost_twice_skips_row",
        "session_claim_lost_waits",
        scene=scenes.a_newcomer_of_a_session_starts_past_one_in_line,
    ),
    rule("one_run_a_session", faults=CALM, crowded=True),
    rule("next_of_session_startable", faults=CALM),
    # Start
    told("renewal_before_row", scene=scenes.a_row_starts_without_a_slot_before_the_store_is_rebuilt),
    told("start_needs_token", scene=scenes.a_stale_worker_starts_after_a_rebuild),
    told("refused_start_undone", scene=scenes.a_granted_slot_vanishes),
    rule("undo_needs_token", faults=FLUSHED),
    told("lease_checked_before_work", scene=scenes.a_worker_is_frozen_before_its_work_begins),
    told("local_work_ends_with_lease", scene=scenes.a_local_run_outlives_its_worker),
    # Give
    rule("finish_fenced", faults=LAPSING),
    told("row_before_slot", scene=scenes.the_store_is_emptied_between_the_two_halves_of_giving_back),
    told("release_until_answered", scene=scenes.a_run_ends_while_the_store_is_rebuilt),
    rule("drain_after_release", faults=replace(CALM, ways=("release",))),
    # In place
    rule("ungranted_claim_undone", faults=CALM),
    rule("ungranted_not_started", faults=CALM),
    rule("unknown_handover_releases_both", faults=Faults(repeat=True, ways=("in place",))),
    told("unstarted_handover_released", scene=scenes.a_row_claimed_in_place_is_cancelled_before_its_handover),
    told("others_start_keeps_slot", scene=scenes.a_second_delivery_starts_the_row_claimed_in_place),
    told("undo_drains", scene=scenes.an_answer_lost_in_place_leaves_nobody_waiting),
    # Repair
    told("retired_as_seen", scene=scenes.a_row_claimed_in_place_starts_between_repairs_look_and_its_act),
    told("fence_before_freeing", scene=scenes.repair_frees_the_slot_of_lost_work),
    told("stop_before_freeing", scene=scenes.repair_frees_the_slot_of_lost_work),
    told("row_asked_waits", scene=scenes.a_run_carried_on_by_its_row_is_lost),
    told("token_kept_until_stopped", scene=scenes.repair_meets_an_agent_that_can_not_be_asked),
    rule("unsaid_left_to_repair", faults=STEERED),
    told("agent_remembers_terminate", scene=scenes.a_worker_is_frozen_before_its_request_is_sent),
    told("rowless_freed_in_phase", scene=scenes.a_request_is_frozen_before_its_row_is_there),
    rule("lost_repaired", faults=FAULTY),
    told("slots_without_row_repaired", scene=scenes.a_request_dies_between_slot_and_row),
    rule("dispatched_again", faults=FAULTY),
    # Rebuild
    told("rebuild_requeues_unstarted", scene=scenes.a_slot_taken_before_the_store_was_emptied_has_no_row_yet),
    told("rebuild_spares_later_grants", scene=scenes.a_rebuilder_is_frozen_and_overtaken),
    told("rebuild_reads_after_requeue", scene=scenes.a_row_starts_while_the_store_is_rebuilt),
    told("rebuild_clears", scene=scenes.the_store_comes_back_as_it_was),
    Mutation(name="rebuild without a nonce", lua=_NO_NONCE, faults=FLUSHED),
    told("vanished_waits_a_lease", scene=scenes.a_slot_vanishes_and_its_session_goes_on),
    # The fleet
    rule("in_place_not_under_cap", faults=STEERED, seeds=(93,)),
    told("cap_raise_drains", scene=scenes.a_raised_cap_fills_at_once, limit=2),
    told("freed_place_is_the_fleets", scene=scenes.a_freed_place_goes_to_the_agent_served_the_longest_ago, limit=2),
    told("newcomer_waits_for_the_fleet", scene=scenes.a_newcomer_comes_between_a_runs_end_and_the_drain, limit=2),
    told("cap_goes_round", scene=scenes.a_freed_place_goes_to_the_agent_served_the_longest_ago, limit=2),
    # Deletion
    rule("deleted_not_drained", faults=STEERED),
    rule("deletions_finished", faults=STEERED, seeds=(68,)),
    # Steering
    rule("cancel_queued_fenced", faults=STEERED),
    rule("cancel_granted_fenced", faults=STEERED),
    rule("cancel_frees_slot", faults=STEERED),
    told("raise_drains", scene=scenes.a_raised_limit_fills_at_once),
    # Scripts
    Mutation(name="acquire at the limit, too", lua={"acquire": ("count < (tonumber(limit_text)", "count <= (tonumber(limit_text)")}),
    Mutation(name="acquire without the fleet's cap", lua={"acquire": ("if fleet_text ~= ''", "if false")}),
    Mutation(
        name="acquire the next number, not the lowest",
        lua={"acquire": ("number = lowest_free(all)", "number = count + 1")},
        scene=scenes.a_slot_in_the_middle_is_taken_again,
        limit=2,
    ),
    Mutation(
        name="acquire drops holders whose lease has ended",
        lua={"acquire": (_READ, _READ_AND_DROP)},
        scene=scenes.a_lease_ends_and_nobody_has_looked_yet,
    ),
    Mutation(
        name="acquire while a rebuild is due",
        lua={"acquire": (_CLOSED, "")},
        scene=scenes.a_request_comes_while_the_store_is_rebuilt,
    ),
    Mutation(
        name="any epoch will do",
        lua=dict.fromkeys(("acquire", "renew"), _ANY_EPOCH),
        scene=scenes.the_store_comes_back_from_before_the_run,
    ),
    Mutation(
        name="release by id, whatever the token",
        lua={"release": ("held_token ~= token or", "not held_token or")},
        scene=scenes.a_drain_is_frozen_and_its_row_runs_meanwhile,
    ),
    Mutation(
        name="handover though the one done was not held",
        lua={"handover": ("if unpack_holder(all[done_id]) ~= done_token then", "if false then")},
        scene=scenes.a_handover_is_asked_twice_after_the_limit_was_cut,
        limit=2,
    ),
    Mutation(
        name="handover over the limit",
        lua={"handover": ("count - 1 < (tonumber(limit_text) or 0)", "true")},
        scene=scenes.a_handover_after_the_limit_was_cut_only_releases,
        limit=2,
    ),
    Mutation(
        name="forget a deleted agent though something of it is held",
        lua={"forget": ("if #held > 0 then", "if false then")},
        scene=scenes.an_agent_is_deleted_while_it_works_and_its_name_used_again,
    ),
    Mutation(name="renew brings the lost back", lua={"renew": ("phase == 'lost'", "false")}, faults=LAPSING, seeds=(84,)),
    Mutation(name="renew is refused while a rebuild is due", lua={"renew": ("or REBUILDING", "or 2")}, faults=FLUSHED),
    Mutation(name="reclaim frees what it lists", lua={"reclaim": (_MARK, _FREE)}, scene=scenes.a_lease_ends_and_nobody_has_looked_yet),
)
