"""The rules of the protocol, each with a switch: a test turns each one off and shows that something breaks."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All on: the protocol. The names say what the rule is; the comments, what it keeps."""

    # Take
    no_barging: bool = True  # order: a newcomer waits behind startable rows
    line_order: bool = True  # order: front and priority before age
    front_first: bool = True
    depth_checked_in_line: bool = True  # in the transaction of the insert
    busy_left_alone: bool = True  # a row whose slot another token holds is not claimed
    claim_lost_frees_own_token: bool = True  # and never the winner's slot
    claim_lost_twice_skips_row: bool = True  # a drain ends though a startable row can't be claimed
    drain_looks_each_time: bool = True  # a cut or a pause binds every admission that begins after it
    pause_stops_drain: bool = True
    newcomer_waits_while_paused: bool = True
    fleet_pause_read: bool = True
    claim_needs_queued: bool = True  # one claim a row
    # Sessions
    one_run_a_session: bool = True
    newcomer_asks_session_again: bool = True  # in the transaction of its insert
    session_claim_lost_waits: bool = True  # a row whose session runs after all is not startable
    session_by_age: bool = True  # whatever their priority
    next_of_session_startable: bool = True
    # Start
    renewal_before_row: bool = True  # a started row had its slot after the last rebuild
    start_needs_token: bool = True
    refused_start_undone: bool = True
    undo_needs_token: bool = True
    lease_checked_before_work: bool = True
    local_work_ends_with_lease: bool = True  # its supervisor's own clock
    # Give
    finish_fenced: bool = True  # a terminal status never changes
    row_before_slot: bool = True
    release_until_answered: bool = True  # a release met by a rebuild asks again
    drain_after_release: bool = True
    unsaid_left_to_repair: bool = True  # an outcome without the agent's word that the work is over gives no slot back
    # In place
    ungranted_claim_undone: bool = True
    ungranted_not_started: bool = True
    unknown_handover_releases_both: bool = True
    unstarted_handover_released: bool = True
    others_start_keeps_slot: bool = True  # a second delivery may have started the row under the same token
    undo_drains: bool = True
    in_place_asks_pause: bool = True
    in_place_not_under_cap: bool = True  # a freed place is the fleet's
    # Repair
    retired_as_seen: bool = True  # a row that has started since it was seen without a slot has one by now
    fence_before_freeing: bool = True
    stop_before_freeing: bool = True
    row_asked_waits: bool = True  # a run that asked the row instead of the store may go on for a while after the fence
    token_kept_until_stopped: bool = True  # a rebuild gives a slot back to work that is still being stopped
    vanished_waits_a_lease: bool = True  # the slot is gone, the lease of its work is not
    agent_remembers_terminate: bool = True
    rowless_freed_in_phase: bool = True  # only in the phase it was seen in
    lost_repaired: bool = True
    slots_without_row_repaired: bool = True
    dispatched_again: bool = True
    # Rebuild
    rebuild_requeues_unstarted: bool = True
    rebuild_spares_later_grants: bool = True  # a rebuilder that was overtaken undoes no claim of its successor's time
    rebuild_reads_after_requeue: bool = True
    rebuild_clears: bool = True
    # Steering
    cancel_queued_fenced: bool = True  # only while it is in line
    cancel_granted_fenced: bool = True  # only while it hasn't started
    cancel_frees_slot: bool = True
    deleted_not_drained: bool = True
    deletions_finished: bool = True  # what came while an agent was deleted
    raise_drains: bool = True
    cap_raise_drains: bool = True
    resume_drains: bool = True
    newcomer_waits_for_the_fleet: bool = True  # what is free below the cap may be due to another agent's row in line
    cap_goes_round: bool = True  # to the agent served the longest ago
    freed_place_is_the_fleets: bool = True  # under a cap another agent may be waiting for it
