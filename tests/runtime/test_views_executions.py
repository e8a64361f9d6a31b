"""Reading executions over HTTP, an agent's line, and cancelling."""

import uuid
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog.models import Execution, ExecutionEvent, Status
from capacity import slots
from fleet.models import FleetSettings, Session, Share
from runtime.held import entry_behind, finished

FIELDS = [
    "id", "agent_name", "status", "error_code", "error", "message", "response", "triggered_by", "source", "session_id", "priority",
    "metadata", "retry_of", "continues", "slot_number", "queue_position", "waiting_for", "estimated_start", "created_at", "queued_at",
    "dispatched_at", "started_at", "completed_at", "cancel_requested_at", "duration_ms", "timeout_seconds", "usage",
]  # fmt: skip


@pytest.fixture
def get(api, owner):
    """Reads as the owner, or as somebody else: `get("/api/…", by=…)`."""

    def read(url, *, by=owner, **headers):
        return api(by).get(url, headers=headers)

    return read


def execution_of(answer) -> Execution:
    """The execution that a submit's answer names."""
    return Execution.objects.get(pk=answer.json()["execution_id"])


# -- One ---------------------------------------------------------------------------------------------------------------
def test_a_granted_execution_shows_all_its_fields(get, post_task, agent):
    row = execution_of(post_task("hello", metadata={"a": [1]}))
    for url in (f"/api/executions/{row.pk}/", f"/api/executions/{row.pk}", f"/api/agents/{agent.name}/executions/{row.pk}/"):
        body = get(url).json()
        assert sorted(body) == sorted(FIELDS)
        assert (body["status"], body["waiting_for"], body["queue_position"], body["slot_number"]) == ("running", "worker", None, 1)
        assert (body["started_at"], body["completed_at"], body["duration_ms"], body["response"], body["usage"]) == (None,) * 5
        assert (body["error_code"], body["error"], body["retry_of"], body["continues"], body["session_id"]) == (None,) * 5
        assert (body["source"], body["metadata"], body["timeout_seconds"]) == ({"kind": "user", "name": "olga"}, {"a": [1]}, 900)
        assert all(body[name].endswith("Z") for name in ("created_at", "queued_at", "dispatched_at"))


def test_a_finished_execution_shows_its_times_and_what_it_used(get, post_task):
    row = execution_of(post_task())
    now = timezone.now()
    Execution.objects.update(
        status="success",
        slot_token=None,
        started_at=now - timedelta(seconds=1.5),
        completed_at=now,
        response="",
        input_tokens=5,
        cost_usd="0.25",
    )
    body = get(f"/api/executions/{row.pk}/").json()
    assert (body["status"], body["duration_ms"], body["response"], body["waiting_for"]) == ("success", 1500, "", None)
    assert body["usage"] == {"input_tokens": 5, "output_tokens": None, "cost_usd": 0.25}


def test_executions_that_are_not_there_or_not_yours_are_told_apart(get, post_task, make_agent, stranger):
    row = execution_of(post_task())
    answer = get(f"/api/executions/{uuid.uuid4()}/")
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (404, "execution_not_found", "Execution not found")
    answer = get(f"/api/executions/{row.pk}/", by=stranger)
    assert (answer.status_code, answer.json()["code"]) == (403, "access_denied")
    other = make_agent()
    assert get(f"/api/agents/{other.name}/executions/{row.pk}/").status_code == 404
    assert get(f"/api/agents/nobody/executions/{row.pk}/").json()["code"] == "agent_not_found"
    assert get("/api/executions/no-id/").json()["code"] == "not_found"


def test_an_execution_outlives_its_agent_for_who_may_read_it(get, post_task, agent):
    row = execution_of(post_task())
    type(agent).objects.update(deleted_at=timezone.now())
    assert get(f"/api/executions/{row.pk}/").status_code == 200
    assert get(f"/api/agents/{agent.name}/executions/{row.pk}/").status_code == 404
    assert get("/api/executions/").json()["results"] == []


def test_a_wait_answers_at_once_where_no_server_holds_the_call(get, post_task):
    row = execution_of(post_task())
    answer = get(f"/api/executions/{row.pk}/?wait=60")
    assert (answer.status_code, answer.json()["status"]) == (200, "running")
    for wrong in ("61", "-1", "x", "1.5", ""):
        assert get(f"/api/executions/{row.pk}/?wait={wrong}").json()["detail"] == "wait must be an integer between 0 and 60"


# -- Why it waits ------------------------------------------------------------------------------------------------------
def test_the_first_reason_to_wait_that_applies_is_told(get, post_task, make_agent, owner):
    def reason() -> str:
        return get(f"/api/executions/{waits.pk}/").json()["waiting_for"]

    single = make_agent(limit=1)
    session = Session.objects.create(agent=single, owner=owner)
    post_task(to=single, session_id=str(session.pk))
    waits = execution_of(post_task(to=single, session_id=str(session.pk)))
    assert reason() == "session"
    Execution.objects.filter(pk=waits.pk).update(startable=True)
    assert reason() == "slot"
    type(single).objects.update(max_parallel_tasks=2)
    FleetSettings.objects.update(max_parallel_tasks_ceiling=1)
    assert reason() == "ceiling"
    FleetSettings.objects.update(max_concurrent_tasks=1)
    assert reason() == "fleet"
    FleetSettings.objects.update(paused=True)
    assert reason() == "paused"


# -- Lists -------------------------------------------------------------------------------------------------------------
def test_lists_are_newest_first_in_pages(get, post_task, make_agent):
    agent = make_agent(limit=2)
    ids = [post_task(to=agent).json()["execution_id"] for _ in range(5)]
    found, url = [], f"/api/agents/{agent.name}/executions/?limit=2"
    while url:
        page = get(url).json()
        found += [row["id"] for row in page["results"]]
        url = page["next"]
    assert found == ids[::-1]
    assert page["previous"] is not None
    whole = get("/api/executions/").json()
    assert [row["queue_position"] for row in whole["results"]] == [3, 2, 1, None, None]
    assert [row["id"] for row in whole["results"]] == ids[::-1]
    assert (whole["next"], whole["previous"]) == (None, None)


def test_lists_hold_only_what_the_caller_may_see(get, post_task, make_agent, stranger, superuser, make_key):
    mine, theirs = make_agent(), make_agent(owner=stranger)
    post_task(to=mine)
    post_task(to=theirs, by=stranger)
    post_task(to=make_agent(owner=superuser), by=superuser)
    names = [[row["agent_name"] for row in get("/api/executions/", by=who).json()["results"]] for who in (stranger, superuser)]
    assert [len(found) for found in names] == [1, 3]
    Share.objects.create(agent=theirs, user=User.objects.get(username="olga"))
    assert {row["agent_name"] for row in get("/api/executions/").json()["results"]} == {mine.name, theirs.name}
    assert len(get("/api/executions/", by=make_key("system", owner=superuser)).json()["results"]) == 3
    assert get(f"/api/agents/{mine.name}/executions/", by=stranger).status_code == 403


def test_filters_narrow_a_list(get, post_task, make_agent, owner):
    agent, other = make_agent(limit=1), make_agent()
    session = Session.objects.create(agent=other, owner=owner)
    first, second = execution_of(post_task(to=agent)), execution_of(post_task(to=agent))
    third = execution_of(post_task(to=other, session_id=str(session.pk)))
    Execution.objects.filter(pk=third.pk).update(triggered_by="schedule", created_at=timezone.now() + timedelta(hours=1))
    third.refresh_from_db()

    def found(query: str) -> set[uuid.UUID]:
        answer = get(f"/api/executions/?{query}")
        assert answer.status_code == 200, answer.content
        return {uuid.UUID(row["id"]) for row in answer.json()["results"]}

    assert found("status=queued") == {second.pk}
    assert found("status=queued&status=running") == {first.pk, second.pk, third.pk}
    assert found("triggered_by=schedule") == {third.pk}
    assert found(f"session_id={session.pk}") == {third.pk}
    assert found(f"agent={agent.name}") == {first.pk, second.pk}
    assert found("agent=nobody") == set()
    for row in (first, third):
        at = row.created_at.isoformat().replace("+00:00", "Z")
        assert row.pk in found(f"since={at}")
        assert row.pk not in found(f"until={at}")
    assert found("since=0001-01-01T00:00:00Z") == {first.pk, second.pk, third.pk}
    assert found("until=0001-01-01T00:00:00Z") == set()


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("status=done", "status must be one of queued, running, success, failed, cancelled"),
        ("triggered_by=me", "triggered_by must be one of manual, agent, mcp, schedule, public, chat, approval, retry"),
        ("session_id=7", "session_id must be a UUID"),
        ("since=yesterday", "since must be a time such as 2030-01-31T12:00:00Z"),
        ("until=2030-01-01T00:00:00", "until must be a time such as 2030-01-31T12:00:00Z"),
        ("limit=201", "limit must be an integer between 1 and 200"),
        ("limit=0", "limit must be an integer between 1 and 200"),
        ("cursor=zzz", "cursor is not one of this list"),
        ("agent=a%00b", "agent must be text of at most 500 characters"),
    ],
)
def test_a_wrong_parameter_is_named(get, query, detail):
    answer = get(f"/api/executions/?{query}")
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)


def test_an_unknown_parameter_is_refused_with_the_valid_ones(get, agent):
    answer = get(f"/api/agents/{agent.name}/executions/?agent=x")
    assert answer.status_code == 400
    assert answer.json()["detail"] == (
        "Unknown query parameter 'agent'; the valid ones are status, triggered_by, session_id, since, until, "
        "error_code, text, mine, limit, cursor"
    )


def test_a_list_costs_the_same_however_long_it_is(get, post_task, make_agent):
    agents = [make_agent(limit=1) for _ in range(3)]
    counted = []
    for _ in range(2):
        for agent in agents:
            post_task(to=agent)
            post_task(to=agent)
        with CaptureQueriesContext(connection) as queries:
            assert len(get("/api/executions/").json()["results"]) == Execution.objects.count()
        counted.append(len(queries))
    assert counted[0] == counted[1]


# -- The line ----------------------------------------------------------------------------------------------------------
def test_the_line_is_shown_in_its_order(get, post_task, make_agent):
    single = make_agent(limit=1, depth=9)
    post_task(to=single)
    usual, late, urgent = [post_task("m" * 150, to=single, priority=n).json()["execution_id"] for n in (5, 4, 9)]
    Execution.objects.filter(pk=late).update(front=False)
    body = get(f"/api/agents/{single.name}/queue/").json()
    assert {name: body[name] for name in ("agent_name", "paused", "depth", "max_backlog_depth", "next")} == {
        "agent_name": single.name, "paused": False, "depth": 3, "max_backlog_depth": 9, "next": None,
    }  # fmt: skip
    assert [row["id"] for row in body["results"]] == [urgent, usual, late]
    assert [row["queue_position"] for row in body["results"]] == [1, 2, 3]
    row = body["results"][0]
    assert (row["message_preview"], row["priority"], row["triggered_by"], row["waiting_for"]) == ("m" * 100, 9, "manual", "slot")
    first = get(f"/api/agents/{single.name}/queue/?limit=2").json()
    rest = get(first["next"]).json()
    assert [row["id"] for row in first["results"] + rest["results"]] == [urgent, usual, late]
    assert rest["results"][0]["queue_position"] == 3


def test_rows_of_one_instant_keep_a_stable_order(get, post_task, make_agent):
    single = make_agent(limit=1)
    post_task(to=single)
    ids = [post_task(to=single).json()["execution_id"] for _ in range(6)]
    Execution.objects.filter(status=Status.QUEUED).update(queued_at=timezone.now())
    orders = set()
    for limit in (1, 2, 6):
        found, url = [], f"/api/agents/{single.name}/queue/?limit={limit}"
        while url:
            page = get(url).json()
            found += [(row["id"], row["queue_position"]) for row in page["results"]]
            url = page["next"]
        orders.add(tuple(found))
    assert orders == {tuple(zip(sorted(ids), range(1, 7), strict=True))}


# -- The log -----------------------------------------------------------------------------------------------------------
def test_a_runs_log_is_read_in_pages(get, post_task, agent):
    row = execution_of(post_task())
    ExecutionEvent.objects.bulk_create(ExecutionEvent(execution=row, seq=n, type="text", data={"text": str(n)}) for n in range(1, 503))
    url = f"/api/agents/{agent.name}/executions/{row.pk}/events/"
    page = get(url).json()
    assert [event["seq"] for event in page["results"]] == list(range(1, 501))
    rest = get(page["next"]).json()
    assert [event["seq"] for event in rest["results"]] == [501, 502]
    assert rest["next"] is None
    event = get(f"/api/executions/{row.pk}/events?after=501").json()["results"][0]
    assert event.pop("at").endswith("Z")
    assert event == {"seq": 502, "type": "text", "data": {"text": "502"}}
    assert get(f"{url}?after=-1").status_code == 400


def test_a_wait_for_a_log_ends_with_its_next_entry_or_the_execution(get, post_task):
    row = execution_of(post_task())
    url = f"/api/executions/{row.pk}/events/"
    assert get(f"{url}?wait=5").json() == {"results": [], "next": None}
    keys = {after: entry_behind(row.pk, after) for after in (0, 1, 2)} | {"end": str(row.pk), "gone": entry_behind(uuid.uuid4(), 7)}
    assert finished(keys.values()) == {keys["gone"]}
    ExecutionEvent.objects.bulk_create(ExecutionEvent(execution=row, seq=n, type="text") for n in (1, 2))
    with CaptureQueriesContext(connection) as queries:
        assert finished(keys.values()) == {keys[0], keys[1], keys["gone"]}
    assert len(queries) == 2
    assert [event["seq"] for event in get(f"{url}?wait=5&after=1").json()["results"]] == [2]
    Execution.objects.update(status="success", slot_token=None, completed_at=timezone.now())
    assert finished(keys.values()) == set(keys.values())
    assert get(f"{url}?wait=5&after=2").json() == {"results": [], "next": None}
    for wrong in ("61", "-1", "x"):
        assert get(f"{url}?wait={wrong}").json()["detail"] == "wait must be an integer between 0 and 60"


def test_a_log_is_not_for_strangers(get, post_task, stranger):
    row = execution_of(post_task())
    assert get(f"/api/executions/{row.pk}/events/", by=stranger).status_code == 403


# -- Cancel ------------------------------------------------------------------------------------------------------------
def test_cancelling_one_in_line_touches_it_alone(api, owner, get, post_task, make_agent):
    single = make_agent(limit=1)
    runs, waits, last = (execution_of(post_task(to=single)) for _ in range(3))
    for _ in range(2):  # again: the same answer
        answer = api(owner).post(f"/api/executions/{waits.pk}/cancel/")
        assert (answer.status_code, answer.json()) == (200, {"status": "cancelled"})
    body = get(f"/api/executions/{waits.pk}/").json()
    assert (body["status"], body["error_code"], body["queue_position"]) == ("cancelled", "cancelled", None)
    assert body["cancel_requested_at"] is not None
    assert get(f"/api/executions/{last.pk}/").json()["queue_position"] == 1
    assert [holder.execution_id for holder in slots.state(single.name).holders] == [runs.pk]


def test_cancelling_one_that_has_not_started_gives_its_slot_to_the_next(api, owner, post_task, make_agent):
    single = make_agent(limit=1)
    granted, waits = (execution_of(post_task(to=single)) for _ in range(2))
    answer = api(owner).post(f"/api/agents/{single.name}/executions/{granted.pk}/cancel", {}, format="json")
    assert (answer.status_code, answer.json()) == (200, {"status": "cancelled"})
    waits.refresh_from_db()
    assert waits.status == Status.RUNNING
    assert [holder.execution_id for holder in slots.state(single.name).holders] == [waits.pk]


def test_cancelling_one_that_runs_is_under_way_until_it_has_stopped(api, owner, post_task):
    row = execution_of(post_task())
    Execution.objects.update(started_at=timezone.now())
    for _ in range(2):
        answer = api(owner).post(f"/api/executions/{row.pk}/cancel/")
        assert (answer.status_code, answer.json()) == (202, {"status": "cancelling"})
    row.refresh_from_db()
    assert (row.status, row.cancel_requested_at is not None) == ("running", True)


@pytest.mark.parametrize("status", ["success", "failed"])
def test_what_has_ended_otherwise_can_not_be_cancelled(api, owner, post_task, status):
    row = execution_of(post_task())
    Execution.objects.update(status=status, slot_token=None, completed_at=timezone.now())
    answer = api(owner).post(f"/api/executions/{row.pk}/cancel/")
    assert (answer.status_code, answer.json()["code"]) == (409, "already_finished")
    assert answer.json()["detail"] == f"Execution {row.pk} is already {status}"
    assert answer.json()["execution_id"] == str(row.pk)


def test_the_owner_and_the_submitter_may_cancel_and_nobody_else(api, owner, post_task, make_key, agent, make_agent, stranger, superuser):
    Share.objects.create(agent=agent, user=stranger)
    theirs, owners = execution_of(post_task(by=stranger)), execution_of(post_task())
    assert api(stranger).post(f"/api/executions/{owners.pk}/cancel/").json()["code"] == "access_denied"
    assert api(stranger).post(f"/api/executions/{theirs.pk}/cancel/").status_code == 200
    key = make_key("agent", agent=make_agent(name="caller"))
    keys = execution_of(post_task(by=key))
    assert api(key).post(f"/api/executions/{owners.pk}/cancel/").status_code == 403
    assert api(key).post(f"/api/executions/{keys.pk}/cancel/").status_code == 200
    assert api(superuser).post(f"/api/executions/{owners.pk}/cancel/").status_code == 200
    assert api(owner).post(f"/api/executions/{uuid.uuid4()}/cancel/").status_code == 404


def test_a_cancel_takes_no_fields(api, owner, post_task):
    row = execution_of(post_task())
    answer = api(owner).post(f"/api/executions/{row.pk}/cancel/", {"force": True}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_field")


def test_a_cancel_holds_while_the_slot_store_is_away(api, owner, post_task, store_out_of_reach, make_agent):
    single = make_agent(limit=1)
    post_task(to=single)
    waits = execution_of(post_task(to=single))
    store_out_of_reach(True)
    assert api(owner).post(f"/api/executions/{waits.pk}/cancel/").status_code == 200
    assert api(owner).get(f"/api/executions/{waits.pk}/").json()["status"] == "cancelled"


# -- Everywhere --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "executions/"),
        ("GET", "executions/{id}/"),
        ("GET", "executions/{id}/events/"),
        ("POST", "executions/{id}/cancel/"),
        ("GET", "agents/{name}/executions/"),
        ("GET", "agents/{name}/queue/"),
        ("GET", "agents/{name}/capacity"),
        ("PUT", "agents/{name}/capacity"),
        ("POST", "agents/{name}/task"),
        ("GET", "agents/slots"),
        ("GET", "agents/{name}/"),
        ("PATCH", "agents/{name}/"),
        ("DELETE", "agents/{name}/"),
        ("POST", "agents/{name}/pause/"),
        ("POST", "agents/{name}/resume/"),
        ("POST", "agents/{name}/queue/clear/"),
        ("POST", "agents/{name}/slots/release/"),
        ("POST", "fleet/pause/"),
        ("POST", "fleet/resume/"),
        ("GET", "settings/max-parallel-tasks-ceiling"),
        ("PUT", "settings/max-parallel-tasks-ceiling"),
    ],
)
def test_nothing_is_answered_without_credentials(api, agent, method, path):
    answer = api(None).generic(method, "/api/" + path.format(id=uuid.uuid4(), name=agent.name), content_type="application/json")
    assert (answer.status_code, answer["WWW-Authenticate"], answer["Content-Type"]) == (401, "Bearer", "application/problem+json")
