"""Which test shows each error of the API; an error without one fails here."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture import documents

TESTS = Path(__file__).resolve().parent.parent

#: The test that provokes each error and looks at its code; `file::test`.
SHOWN_BY = {
    "access_denied": "runtime/test_submit.py::test_strangers_and_unknown_agents_are_told_apart",
    "access_lost": "runtime/test_fitness.py::test_a_caller_who_lost_access_is_not_served_and_the_next_is",
    "agent_auth": "flows/test_callers.py::test_the_errors_of_a_sync_run_name_their_cause",
    "agent_deleted": "flows/test_control.py::test_a_deleted_agents_callers_are_told_and_its_name_is_clean",
    "agent_error": "flows/test_callers.py::test_the_errors_of_a_sync_run_name_their_cause",
    "agent_not_found": "runtime/test_submit.py::test_strangers_and_unknown_agents_are_told_apart",
    "agent_paused": "runtime/test_controls.py::test_a_paused_fleet_starts_nothing_new_of_any_agent",
    "agent_rate_limited": "flows/test_callers.py::test_the_errors_of_a_sync_run_name_their_cause",
    "agent_unreachable": "runtime/test_http.py::test_a_closed_port_is_unreachable_after_four_attempts",
    "already_finished": "runtime/test_views_executions.py::test_what_has_ended_otherwise_can_not_be_cancelled",
    "at_capacity": "flows/test_main_story.py::test_a_sync_task_answers_with_its_result_and_is_refused_at_capacity",
    "backlog_full": "runtime/test_submit.py::test_a_full_backlog_is_refused_with_its_depth",
    "body_too_large": "core/test_asgi.py::test_body_one_byte_too_long_is_a_413_and_the_longest_is_read",
    "cancelled": "flows/test_callers.py::test_a_cancel_while_queued_tells_the_waiting_caller_at_once",
    "execution_id_taken": "runtime/test_given_ids.py::test_another_agents_execution_is_not_answered_with",
    "expired": "runtime/test_repair.py::test_what_waited_too_long_fails_as_expired",
    "fleet_at_capacity": "runtime/test_submit.py::test_the_fleets_cap_refuses_too",
    "idempotency_malformed": "runtime/test_submit.py::test_a_malformed_key_is_refused",
    "idempotency_mismatch": "runtime/test_submit.py::test_a_key_with_another_body_is_refused",
    "internal": "core/test_problems.py::test_a_fault_of_ours_tells_nothing_but_is_logged_with_its_traceback",
    "invalid_body": "runtime/test_views_capacity.py::test_what_is_no_object_is_refused",
    "invalid_request": "runtime/test_fitness.py::test_a_corrupt_request_fails_with_its_reason_and_the_next_starts_at_once",
    "invalid_token": "fleet/test_tokens_api.py::test_a_refresh_token_that_is_none_is_invalid",
    "lease_lost": "runtime/test_releases.py::test_force_frees_at_once_fences_the_run_and_tells_its_work_to_stop",
    "method_not_allowed": "core/test_problems.py::test_another_method_is_refused_with_those_that_there_are",
    "not_finished": "runtime/test_retries.py::test_what_has_not_finished_is_not_retried",
    "no_slot_held": "runtime/test_releases.py::test_nobody_elses_slot_is_freed",
    "not_authenticated": "runtime/test_submit.py::test_strangers_and_unknown_agents_are_told_apart",
    "not_found": "core/test_problems.py::test_an_unknown_path_is_a_problem",
    "origin_forbidden": "gateway/test_server.py::test_requests_must_be_for_this_host_and_pages_of_it_or_allowed",
    "owner_required": "runtime/test_views_capacity.py::test_only_people_who_own_the_agent_change_its_limit",
    "person_required": "runtime/test_views_capacity.py::test_only_people_who_own_the_agent_change_its_limit",
    "public_link_not_found": "fleet/test_public_links.py::test_a_link_is_the_agents_own",
    "queue_full": "runtime/test_chat.py::test_three_turns_of_an_agent_wait_and_the_fourth_is_refused",
    "schedule_exists": "runtime/test_schedules.py::test_a_name_is_there_once",
    "schedule_not_found": "runtime/test_schedules.py::test_what_is_not_there_or_anothers_is_not_found",
    "session_busy": "runtime/test_submit.py::test_a_busy_session_refuses_a_caller_who_does_not_wait",
    "session_closed": "runtime/test_submit.py::test_sessions_must_be_the_agents_own_and_open",
    "session_not_found": "runtime/test_submit.py::test_sessions_must_be_the_agents_own_and_open",
    "share_not_found": "fleet/test_shares_api.py::test_withdrawing_twice_finds_nothing_to_withdraw",
    "slots_unavailable": "runtime/test_submit.py::test_without_the_slot_store_nothing_is_accepted_and_the_key_stays_free",
    "source_agent_forbidden": "runtime/test_submit.py::test_an_agents_key_submits_for_its_agent",
    "throttled": "core/test_problems.py::test_a_throttled_caller_is_told_whole_seconds",
    "timeout": "runtime/test_command.py::test_a_run_past_its_limit_ends_with_all_its_processes",
    "unavailable": "core/test_problems.py::test_a_database_that_refuses_connections_is_a_503",
    "unsupported_media_type": "core/test_problems.py::test_another_media_type_is_refused",
    "wait_timeout": "flows/test_callers.py::test_a_wait_that_runs_out_is_504_and_the_same_key_later_has_the_result",
    "worker_lost": "flows/test_faults.py::test_a_killed_workers_commands_die_and_a_new_worker_goes_on_with_the_line",
}
#: Shown by a test class's table of cases, or in a constant: the file is named alone.
SHOWN_IN = {
    "agent_exists": "fleet/test_agents_api.py",
    "csrf_failed": "fleet/test_authentication.py",
    "execution_not_found": "runtime/test_views_executions.py",
    "invalid": "runtime/test_views_capacity.py",
    "invalid_credentials": "fleet/test_tokens_api.py",
    "key_not_found": "fleet/test_keys_api.py",
    "precondition_failed": "fleet/test_services.py",
    "unknown_parameter": "fleet/test_agents_api.py",
}
#: Errors of features that are not here yet; each is to move up with its feature.
LATER = {
    "already_decided": "approvals",
    "phrase_mismatch": "typed confirmations",
    "plan_changed": "plans and their approval",
}


def source_of(place: str) -> str:
    """The test function's source with its parameters, or the whole file's."""
    file, _, name = place.partition("::")
    text = (TESTS / file).read_text()
    if not name:
        return text
    [test] = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name]
    first = min([test.lineno, *(decorator.lineno for decorator in test.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : test.end_lineno])


@pytest.mark.parametrize("code", sorted({*SHOWN_BY, *SHOWN_IN}))
def test_the_named_test_speaks_of_the_error(code: str) -> None:
    assert re.search(rf"\b{code}\b", source_of(SHOWN_BY.get(code) or SHOWN_IN[code]))


def test_every_error_has_a_test() -> None:
    documented = set(re.findall(r"^\| `(\w+)`", documents.ERRORS.read_text(), re.MULTILINE))
    assert documented - {*SHOWN_BY, *SHOWN_IN} == set()
    assert documented & {*LATER} == set()
