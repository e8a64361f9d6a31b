"""The rules of the protocol, each with a switch: a test turns each one off and shows that something breaks."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All on: the protocol. The names say what the rule is; the comments, what it keeps."""

    # Take
    no_barging: bool = True  # order: a newcomer waits behind startable rows
    line_order: bool = True  # order: front and priority before age
    busy_left_alone: bool = True  # a row whose slot another token holds is not claimed
    claim_lost_frees_own_token: bool = True  # and never the winner's slot
    claim_lost_twice_skips_row: bool = True  # a drain ends though a startable row can't be claimed
    claim_needs_queued: bool = True  # one claim a row
    # Sessions
    one_run_a_session: bool = True
    newcomer_holds_session_back: bool = True  # rows of its session in line are not startable while it runs
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
    # In place
    ungranted_claim_undone: bool = True
    ungranted_not_started: bool = True
    unknown_handover_releases_both: bool = True
    unstarted_handover_released: bool = True
    others_start_keeps_slot: bool = True  # a second delivery may have started the row under the same token
    undo_drains: bool = True
    # Repair
    fence_before_freeing: bool = True
    stop_before_freeing: bool = True
    row_asked_waits: bool = True  # a run that asked the row instead of the store may go on for a while after the fence
    token_kept_until_stopped: bool = True  # a rebuild gives a slot back to work that is still being stopped
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
    # Cancel
    cancel_granted_fenced: bool = True  # only while it hasn't started
    cancel_frees_slot: bool = True
    # Limits
    raise_drains: bool = True
