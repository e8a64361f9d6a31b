"""Submitting a task over HTTP: what is accepted, what waits, what is refused, and what a repeated key answers."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from rest_framework.request import Request

from backlog.models import Execution, IdempotencyKey, Status
from fleet.models import FleetSettings, Session
from fleet.principals import Principal
from runtime.views.preferences import manner_of

COLUMNS = {
    "message": "say it",
    "model": "m-1",
    "system_prompt": "be brief",
    "allowed_tools": ["read", "write"],
    "max_turns": 7,
    "timeout_seconds": 61,
    "priority": 8,
    "metadata": {"ticket": [1, None, "x"]},
}


def test_a_task_that_finds_a_slot_is_accepted(post_task, agent):
    answer = post_task()
    row = Execution.objects.get()
    assert answer.status_code == 202
    assert answer.json() == {"status": "accepted", "execution_id": str(row.pk), "agent_name": agent.name, "async_mode": True}
    assert answer["Location"] == f"/api/executions/{row.pk}/"
    assert (row.status, row.slot_number, row.triggered_by, row.source_kind, row.source_name) == ("running", 1, "manual", "user", "olga")


def test_tasks_beyond_the_limit_are_queued_with_their_places(post_task, make_agent):
    single = make_agent(limit=1)
    answers = [post_task(to=single).json() for _ in range(3)]
    assert [answer["status"] for answer in answers] == ["accepted", "queued", "queued"]
    assert [answer.get("queue_position") for answer in answers] == [None, 1, 2]
    assert answers[1] == {
        "status": "queued", "execution_id": answers[1]["execution_id"], "agent_name": single.name, "async_mode": True, "queue_position": 1,
    }  # fmt: skip


def test_the_path_works_with_its_slash_too(api, owner, agent):
    assert api(owner).post(f"/api/agents/{agent.name}/task/", {"message": "m", "async_mode": True}, format="json").status_code == 202


@pytest.mark.parametrize("in_line", [False, True])
def test_everything_that_was_asked_for_is_in_the_row_whether_it_started_or_waits(post_task, make_agent, owner, in_line):
    single = make_agent(limit=1)
    session = Session.objects.create(agent=single, owner=owner)
    if in_line:
        post_task(to=single)
    answer = post_task(to=single, session_id=str(session.pk), **COLUMNS)
    row = Execution.objects.get(pk=answer.json()["execution_id"])
    assert row.status == (Status.QUEUED if in_line else Status.RUNNING)
    assert {name: getattr(row, name) for name in COLUMNS} == COLUMNS
    assert row.session_id == session.pk


# -- Refusals ----------------------------------------------------------------------------------------------------------
def test_at_capacity_a_caller_who_waits_is_refused_without_a_row(post_task, make_agent):
    single = make_agent(limit=1, depth=4)
    post_task(to=single)
    answer = post_task(to=single, async_mode=None)
    problem = answer.json()
    assert answer.status_code == 429
    assert problem["detail"] == f"Agent '{single.name}' is at capacity (1 parallel tasks). Try again later."
    assert problem["code"] == "at_capacity"
    load = {name: problem[name] for name in ("active_slots", "max_parallel_tasks", "queued", "max_backlog_depth")}
    assert load == {"active_slots": 1, "max_parallel_tasks": 1, "queued": 0, "max_backlog_depth": 4}
    assert 1 <= int(answer["Retry-After"]) <= 300
    assert Execution.objects.count() == 1


def test_a_full_backlog_is_refused_with_its_depth(post_task, make_agent):
    single = make_agent(limit=1, depth=1)
    post_task(to=single)
    post_task(to=single)
    answer = post_task(to=single)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "backlog_full")
    assert (
        problem["detail"] == f"Agent '{single.name}' is at capacity (1 parallel tasks) and its backlog is full (1 queued). Try again later."
    )
    assert (problem["active_slots"], problem["queued"], problem["max_backlog_depth"]) == (1, 1, 1)
    assert int(answer["Retry-After"]) >= 1
    assert Execution.objects.count() == 2


def test_the_fleets_cap_refuses_too(post_task, make_agent):
    FleetSettings.objects.update(max_concurrent_tasks=1)
    post_task(to=make_agent())
    answer = post_task(to=make_agent(), on_full="reject")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "fleet_at_capacity")
    assert problem["detail"] == "1 tasks already running, try again shortly"
    assert (problem["running"], problem["max_concurrent_tasks"]) == (1, 1)
    assert int(answer["Retry-After"]) >= 1


def test_a_fleet_that_rejects_at_its_cap_refuses_those_who_would_wait(post_task, make_agent):
    FleetSettings.objects.update(max_concurrent_tasks=1, on_full="reject")
    post_task(to=make_agent())
    answer = post_task(to=make_agent(), async_mode=True)
    assert (answer.status_code, answer.json()["code"]) == (429, "fleet_at_capacity")
    FleetSettings.objects.update(on_full="queue")
    assert post_task(to=make_agent(), async_mode=True).json()["status"] == "queued"


def test_with_a_row_in_line_nobody_new_takes_a_slot_directly(post_task, make_agent):
    post_task(to=make_agent())  # opens the gate
    paused = make_agent(limit=1, paused=True)
    assert post_task(to=paused).json()["queue_position"] == 1
    type(paused).objects.update(paused=False)
    assert post_task(to=paused, on_full="reject").status_code == 429
    later = post_task(to=paused).json()
    first, second = Execution.objects.filter(agent=paused).order_by("queued_at", "id")
    assert (first.status, second.status) == (Status.RUNNING, Status.QUEUED)
    assert str(second.pk) == later["execution_id"]


def test_a_paused_agent_refuses_or_queues(post_task, make_agent):
    paused = make_agent(paused=True)
    answer = post_task(to=paused, async_mode=None)
    assert (answer.status_code, answer.json()["code"]) == (503, "agent_paused")
    assert answer.json()["detail"] == f"Agent '{paused.name}' is paused"
    assert int(answer["Retry-After"]) >= 1
    assert post_task(to=paused).json()["status"] == "queued"


def test_without_the_slot_store_nothing_is_accepted_and_the_key_stays_free(post_task, store_out_of_reach):
    key = {"Idempotency-Key": "again"}
    store_out_of_reach(True)
    answer = post_task(headers=key)
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (503, "slots_unavailable", "Slot store unavailable")
    assert int(answer["Retry-After"]) >= 1
    assert not Execution.objects.exists()
    assert not IdempotencyKey.objects.exists()
    store_out_of_reach(False)
    assert post_task(headers=key).status_code == 202


def test_strangers_and_unknown_agents_are_told_apart(api, post_task, stranger, agent):
    body = {"message": "m"}
    answer = api(None).post(f"/api/agents/{agent.name}/task", body, format="json")
    assert (answer.status_code, answer["WWW-Authenticate"], answer.json()["code"]) == (401, "Bearer", "not_authenticated")
    answer = post_task(by=stranger)
    assert (answer.status_code, answer.json()["detail"], answer.json()["code"]) == (403, "Access denied", "access_denied")
    for name in ("nobody", "ümläut", "a" * 64, "%00"):
        answer = api(stranger).post(f"/api/agents/{name}/task", body, format="json")
        assert (answer.status_code, answer.json()["detail"], answer.json()["code"]) == (404, "Agent not found", "agent_not_found")


def test_sessions_must_be_the_agents_own_and_open(post_task, make_agent, owner, agent):
    others = Session.objects.create(agent=make_agent(), owner=owner)
    closed = Session.objects.create(agent=agent, owner=owner, state=Session.State.CLOSED)
    answer = post_task(session_id=str(others.pk))
    assert (answer.status_code, answer.json()["detail"], answer.json()["code"]) == (404, "Session not found", "session_not_found")
    answer = post_task(session_id=str(closed.pk))
    assert (answer.status_code, answer.json()["code"]) == (409, "session_closed")
    assert answer.json()["detail"] == f"Session {closed.pk} is closed"


def test_a_busy_session_refuses_a_caller_who_does_not_wait(post_task, agent, owner):
    session = Session.objects.create(agent=agent, owner=owner)
    assert post_task(session_id=str(session.pk)).json()["status"] == "accepted"
    answer = post_task(session_id=str(session.pk), on_full="reject")
    assert (answer.status_code, answer.json()["code"]) == (429, "session_busy")
    assert answer.json()["detail"] == f"Session {session.pk} already has a task in progress"
    assert int(answer["Retry-After"]) >= 1
    assert post_task(session_id=str(session.pk)).json()["queue_position"] == 1
    assert post_task(on_full="reject").json()["status"] == "accepted"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"message": None}, "message is required"),
        ({"message": ""}, "message must be text of 1 to 100000 characters"),
        ({"message": " \n\t"}, "message must not be blank"),
        ({"message": "x" * 100_001}, "message must be text of 1 to 100000 characters"),
        ({"message": 5}, "message must be text of 1 to 100000 characters"),
        ({"async_mode": "true"}, "async_mode must be true or false"),
        ({"on_full": "wait"}, "on_full must be one of queue, reject"),
        ({"timeout_seconds": 0}, "timeout_seconds must be an integer between 1 and 7200"),
        ({"timeout_seconds": "5"}, "timeout_seconds must be an integer between 1 and 7200"),
        ({"timeout_seconds": 5.0}, "timeout_seconds must be an integer between 1 and 7200"),
        ({"timeout_seconds": True}, "timeout_seconds must be an integer between 1 and 7200"),
        ({"timeout_seconds": 10**400}, "timeout_seconds must be an integer between 1 and 7200"),
        ({"timeout_seconds": 901}, "timeout_seconds must be an integer between 1 and 900"),
        ({"session_id": "nope"}, "session_id must be a UUID"),
        ({"priority": 10}, "priority must be an integer between 0 and 9"),
        ({"max_turns": 0}, "max_turns must be an integer between 1 and 1000"),
        ({"allowed_tools": "read"}, "allowed_tools must be a list of 0 to 200 entries"),
        ({"allowed_tools": ["x"] * 201}, "allowed_tools must be a list of 0 to 200 entries"),
        ({"allowed_tools": [1]}, "every entry of allowed_tools must be text of 1 to 200 characters"),
        ({"model": "x" * 201}, "model must be text of 0 to 200 characters"),
        ({"metadata": []}, "metadata must be an object of at most 8192 bytes"),
        ({"metadata": {"a": "x" * 8192}}, "metadata must be an object of at most 8192 bytes"),
    ],
)
def test_a_wrong_field_is_named(post_task, body, detail):
    answer = post_task(**body)
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)
    assert not Execution.objects.exists()


def test_an_unknown_field_is_refused_with_the_valid_ones(post_task):
    answer = post_task(mesage="typo")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_field")
    assert "Unknown field 'mesage'; the valid fields are message, async_mode" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body", ["", "[]", "null", '"text"', "{", "{'message': 1}", '{"message": NaN}', "[" * 100_000, '{"message": "\xff"}']
)
def test_what_is_no_json_object_is_refused_and_never_breaks(api, owner, agent, body):
    answer = api(owner).generic("POST", f"/api/agents/{agent.name}/task", body.encode("latin-1"), content_type="application/json")
    assert answer.status_code == 400
    assert not Execution.objects.exists()


@pytest.mark.parametrize("text", ["a\\u0000b", "a\\ud800b"])
def test_text_that_no_database_stores_is_refused(api, owner, agent, text):
    body = f'{{"message": "{text}"}}'
    answer = api(owner).generic("POST", f"/api/agents/{agent.name}/task", body, content_type="application/json")
    assert answer.status_code == 400


def test_the_longest_message_is_taken_and_a_body_too_large_is_not(post_task):
    assert post_task("ü" * 100_000).status_code == 202
    answer = post_task("x" * 5_000_000)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_a_body_of_another_type_is_refused(api, owner, agent):
    answer = api(owner).generic("POST", f"/api/agents/{agent.name}/task", "message=m", content_type="application/x-www-form-urlencoded")
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_an_unknown_query_parameter_is_refused(api, owner, agent):
    answer = api(owner).post(f"/api/agents/{agent.name}/task?async=1", {"message": "m"}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_parameter")


# -- Who asks ----------------------------------------------------------------------------------------------------------
def test_an_agents_key_submits_for_its_agent(post_task, make_key, make_agent, agent):
    caller = make_agent(name="caller")
    key = make_key("agent", agent=caller)
    assert post_task(by=key, headers={"X-Source-Agent": "caller"}).status_code == 202
    row = Execution.objects.get()
    assert (row.triggered_by, row.source_kind, row.source_name) == ("agent", "agent", "caller")
    answer = post_task(by=key, headers={"X-Source-Agent": agent.name})
    assert (answer.status_code, answer.json()["code"]) == (403, "source_agent_forbidden")
    assert answer.json()["detail"] == "X-Source-Agent does not match the credential"


def test_a_system_key_may_ask_for_more_time_than_the_agents_own(post_task, make_key, superuser):
    assert post_task(by=make_key("system", owner=superuser), timeout_seconds=7200).status_code == 202
    assert Execution.objects.get().source_kind == "system"


# -- With the result ---------------------------------------------------------------------------------------------------
def test_without_a_server_that_holds_calls_a_wait_runs_out_at_once(post_task):
    answer = post_task(async_mode=None)
    row = Execution.objects.get()
    assert (answer.status_code, answer.json()["code"]) == (504, "wait_timeout")
    assert answer.json()["detail"] == f"Execution {row.pk} is still running"
    assert answer.json()["execution_id"] == str(row.pk)
    assert answer["Location"] == f"/api/executions/{row.pk}/"


@pytest.mark.django_db(transaction=True)
def test_a_finished_tasks_result_is_the_answer_to_its_key(post_task, carry):
    key = {"Idempotency-Key": "k"}
    first = post_task("echo", async_mode=None, headers=key)
    row = carry(first.json()["execution_id"])
    answer = post_task("echo", async_mode=None, headers=key)
    assert (answer.status_code, answer["Idempotent-Replayed"]) == (200, "true")
    assert (answer.json()["id"], answer.json()["status"], answer.json()["response"]) == (str(row.pk), "success", "echo")


@pytest.mark.parametrize(
    ("error_code", "status", "code"),
    [
        ("agent_error", 502, "agent_error"),
        ("agent_unreachable", 502, "agent_unreachable"),
        ("agent_auth", 502, "agent_auth"),
        ("agent_rate_limited", 502, "agent_rate_limited"),
        ("worker_lost", 502, "worker_lost"),
        ("lease_lost", 502, "lease_lost"),
        ("expired", 502, "expired"),
        ("session_closed", 502, "session_closed"),
        ("access_lost", 502, "access_lost"),
        ("invalid_request", 502, "invalid_request"),
        ("timeout", 504, "timeout"),
    ],
)
def test_a_failure_is_told_by_its_code_and_in_its_own_words(post_task, error_code, status, code):
    key = {"Idempotency-Key": "k"}
    post_task(async_mode=False, headers=key)
    row = ended("failed", error_code=error_code, error="in its own words")
    answer = post_task(async_mode=False, headers=key)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["detail"]) == (status, code, "in its own words")
    assert problem["execution_id"] == str(row.pk)
    assert answer["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("code", ["cancelled", "agent_deleted"])
def test_a_cancel_is_told_to_who_waits(post_task, code):
    key = {"Idempotency-Key": "k"}
    post_task(async_mode=False, headers=key)
    row = ended("cancelled", error_code=code)
    answer = post_task(async_mode=False, headers=key)
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert answer.json()["detail"] == f"Execution {row.pk} was cancelled"


def ended(status: str, **columns: str) -> Execution:
    """The only execution, as it is after it has ended."""
    Execution.objects.update(status=status, slot_token=None, completed_at="2030-01-01T00:00:00Z", **columns)
    return Execution.objects.get()


# -- Preferences -------------------------------------------------------------------------------------------------------
def test_a_preference_decides_where_the_body_says_nothing(post_task, make_agent):
    agent = make_agent(limit=4)
    answer = post_task(to=agent, async_mode=None, headers={"Prefer": "respond-async"})
    assert (answer.status_code, answer["Preference-Applied"]) == (202, "respond-async")
    answer = post_task(to=agent, async_mode=None, headers={"Prefer": "handling=lenient, wait=5"})
    assert (answer.status_code, answer["Preference-Applied"], answer.json()["status"]) == (202, "wait=5", "accepted")
    for wrong in ("wait=0", "wait=601", "wait=x", "wait", ""):
        answer = post_task(to=make_agent(), async_mode=None, headers={"Prefer": wrong})
        assert (answer.status_code, answer.has_header("Preference-Applied")) == (504, False)


@pytest.mark.parametrize(
    ("header", "applied"),
    [
        ("respond-async, wait=10", "respond-async, wait=10"),
        ("wait=10,respond-async", "respond-async, wait=10"),
        ('Wait="7"', "wait=7"),
        ("WAIT = 7 ;x=y", "wait=7"),
        ('wait=7;note="a, wait=9", wait=8', "wait=7"),
        ('note="a, respond-async; \\" ,wait=3", wait=5', "wait=5"),
        ('respond-async=""', "respond-async"),
        ("return=minimal, , ;;, =, wait=5", "wait=5"),
        ("wait=abc, wait=5", None),
        ("wait=5 5", None),
        ('note="open, wait=5', None),
        ("respond-async=yes", None),
        ("wait=٣", None),
        ("wait=0010", None),
        ('"wait"=5', None),
    ],
)
def test_preferences_are_read_as_their_rfc_has_them(header, applied):
    request = Request(RequestFactory().post("/", headers={"Prefer": header}))
    assert manner_of(request, async_mode=None).applied == (applied or "")


def test_a_header_of_any_length_is_read_in_no_time(post_task):
    for header in ('"\\' * 30_000, "a" + " ;" * 30_000, "wait=" + " " * 60_000 + "5", 'wait="' + "\\" * 60_000):
        request = Request(RequestFactory().post("/", headers={"Prefer": header}))
        began = time.perf_counter()
        manner_of(request, async_mode=None)
        assert time.perf_counter() - began < 2


def test_the_body_wins_over_a_preference(post_task):
    answer = post_task(async_mode=False, headers={"Prefer": "respond-async"})
    assert (answer.status_code, answer.has_header("Preference-Applied")) == (504, False)
    answer = post_task(async_mode=True, headers={"Prefer": "wait=5"})
    assert (answer.status_code, answer.has_header("Preference-Applied")) == (202, False)


def test_both_preferences_together_wait_in_line_and_then_for_the_result(post_task, make_agent):
    single, both = make_agent(limit=1), {"Prefer": "respond-async, wait=10"}
    post_task(to=single)
    answer = post_task(to=single, async_mode=None, headers=both)
    assert (answer.status_code, answer.json()["status"], answer["Preference-Applied"]) == (202, "queued", "respond-async, wait=10")
    assert post_task(to=single, async_mode=None, on_full="reject", headers=both).status_code == 429


def test_a_preference_that_was_followed_is_told_with_the_result_and_with_a_failure(post_task, agent):
    headers = {"Prefer": "wait=30", "Idempotency-Key": "once"}
    assert post_task(async_mode=None, headers=headers)["Preference-Applied"] == "wait=30"
    for status, code, expected in (("success", "", 200), ("failed", "agent_error", 502), ("cancelled", "cancelled", 409)):
        ended(status, error_code=code)
        answer = post_task(async_mode=None, headers=headers)
        assert (answer.status_code, answer["Preference-Applied"], answer["Idempotent-Replayed"]) == (expected, "wait=30", "true")


def test_caches_are_told_that_answers_depend_on_preferences(post_task):
    for headers, body in (({}, {}), ({"Prefer": "wait=1"}, {"async_mode": None}), ({}, {"nonsense": 1})):
        assert "Prefer" in [name.strip() for name in post_task(headers=headers, **body)["Vary"].split(",")]


def test_a_preferred_wait_keeps_the_defaults_of_a_call_that_waits(post_task, make_agent):
    single = make_agent(limit=1)
    post_task(to=single)
    assert post_task(to=single, async_mode=None, headers={"Prefer": "wait=1"}).status_code == 429
    answer = post_task(to=single, async_mode=None, on_full="queue", headers={"Prefer": "wait=1"})
    assert (answer.status_code, answer.json()["status"], answer.json()["queue_position"]) == (202, "queued", 1)


# -- Idempotency -------------------------------------------------------------------------------------------------------
def test_the_same_key_and_body_answer_with_the_same_execution(post_task, make_agent, api, owner):
    single = make_agent(limit=1)
    post_task(to=single)
    first = post_task(to=single, headers={"Idempotency-Key": "k"})
    url = f"/api/agents/{single.name}/task"
    reordered = '{ "async_mode":true, "message":\n"hello"}'
    again = api(owner).generic(
        "POST", url, reordered, content_type="application/json", headers={"Idempotency-Key": '"k"', "Prefer": "wait=3"}
    )
    assert again.status_code == 202
    assert again.json() == first.json()
    assert again["Location"] == first["Location"]
    assert again["Idempotent-Replayed"] == "true"
    assert not first.has_header("Idempotent-Replayed")
    assert Execution.objects.count() == 2


def test_a_finished_execution_is_replayed_as_accepted(post_task):
    first = post_task(headers={"Idempotency-Key": "k"}).json()
    ended("success")
    assert post_task(headers={"Idempotency-Key": "k"}).json() == first | {"status": "accepted"}


def test_a_key_with_another_body_is_refused(post_task):
    first = post_task(headers={"Idempotency-Key": "k"}).json()
    answer = post_task("other", headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")
    assert answer.json()["detail"] == "Idempotency-Key was used with a different request"
    assert answer.json()["execution_id"] == first["execution_id"]


@pytest.mark.parametrize("key", ["", '""', '"', '"open', "x" * 256, "two words", "ümlaut", "tab\there"])
def test_a_malformed_key_is_refused(post_task, key):
    answer = post_task(headers={"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_malformed")
    assert answer.json()["detail"] == "Idempotency-Key must be 1 to 255 visible ASCII characters"


def test_a_key_is_its_callers_and_its_agents_own(post_task, make_agent, superuser):
    agent, other = make_agent(), make_agent()
    key = {"Idempotency-Key": "k" * 255}
    ids = [post_task(to=agent, headers=key), post_task(to=agent, by=superuser, headers=key), post_task(to=other, headers=key)]
    assert len({answer.json()["execution_id"] for answer in ids}) == 3


def test_a_refusal_leaves_the_key_free_for_the_retry(post_task, make_agent):
    single = make_agent(limit=1, depth=0)
    post_task(to=single)
    assert post_task(to=single, headers={"Idempotency-Key": "k"}).status_code == 429
    type(single).objects.update(max_parallel_tasks=2)
    answer = post_task(to=single, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.has_header("Idempotent-Replayed")) == (202, False)


def test_a_key_counts_for_a_day(post_task, age_key):
    first = post_task(headers={"Idempotency-Key": "k"}).json()
    age_key(86_401)
    assert post_task(headers={"Idempotency-Key": "k"}).json()["execution_id"] != first["execution_id"]


# -- All at once -------------------------------------------------------------------------------------------------------
@pytest.fixture
def at_once():
    """`at_once(calls)`: the answers of the calls, each on a thread, all let go together."""

    def run(calls):
        gate = threading.Barrier(min(len(calls), 16))

        def one(number):
            if number < gate.parties:
                gate.wait(10)
            try:
                return calls[number]()
            finally:
                connections.close_all()

        with ThreadPoolExecutor(max_workers=16) as pool:
            return list(pool.map(one, range(len(calls))))

    return run


@pytest.mark.django_db(transaction=True)
def test_of_a_hundred_posts_at_once_the_backlog_takes_exactly_as_many_as_it_has_room_for(post_task, make_agent, at_once):
    single = make_agent(limit=1, depth=5)
    for _ in range(5):
        post_task(to=single)
    answers = at_once([lambda: post_task(to=single)] * 100)
    assert Counter(answer.status_code for answer in answers) == {202: 1, 429: 99}
    refused = [answer.json() for answer in answers if answer.status_code == 429]
    assert {(body["code"], body["queued"], body["max_backlog_depth"]) for body in refused} == {("backlog_full", 5, 5)}
    assert Execution.objects.filter(status=Status.QUEUED).count() == 5
    assert Execution.objects.count() == 6


@pytest.mark.django_db(transaction=True)
def test_the_same_key_at_once_makes_one_execution(post_task, make_agent, at_once):
    agent = make_agent(limit=3)
    answers = at_once([lambda: post_task(to=agent, headers={"Idempotency-Key": "k"})] * 8)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["execution_id"] for answer in answers}) == 1
    assert Counter(answer.has_header("Idempotent-Replayed") for answer in answers) == {True: 7, False: 1}
    row = Execution.objects.get()
    assert (row.status, row.slot_number is not None) == (Status.RUNNING, True)


# -- What it costs -----------------------------------------------------------------------------------------------------
@pytest.fixture
def cost(api, owner, valkey):
    """`cost(agent, **headers)`: the SQL statements and the script calls of one submit by a caller who is known already."""

    def measure(agent, **headers):
        client = api(None)
        client.force_authenticate(user=owner, token=Principal.of_user(owner))
        valkey.config_resetstat()
        with CaptureQueriesContext(connection) as queries:
            answer = client.post(f"/api/agents/{agent.name}/task", {"message": "m", "async_mode": True}, format="json", headers=headers)
        assert answer.status_code == 202
        statements = [query["sql"] for query in queries if not query["sql"].startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE"))]
        scripts = valkey.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
        return answer.json()["status"], len(statements), scripts

    return measure


def test_a_submit_costs_few_statements_and_scripts(cost, post_task, make_agent):
    post_task(to=make_agent(limit=1))  # loads the scripts
    agent = make_agent(limit=2)
    status, statements, scripts = cost(agent)
    assert status == "accepted"
    assert statements <= 3
    assert scripts <= 1
    _, with_key, scripts = cost(agent, **{"Idempotency-Key": "k"})
    assert with_key <= 4
    assert scripts <= 1
    for _ in range(2):  # the first in line, and one behind it
        status, statements, scripts = cost(agent)
        assert status == "queued"
        assert statements <= 5
        assert scripts <= 2
    _, with_key, scripts = cost(agent, **{"Idempotency-Key": "another"})
    assert with_key <= 6
    assert scripts <= 2
