"""Finished executions, submitted anew."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from backlog.models import Execution, Status
from fleet.models import Session, Share
from runtime.services import retries

ASKED = {"model": "m-1", "system_prompt": "be brief", "allowed_tools": ["read"], "max_turns": 7, "priority": 8, "metadata": {"a": [1]}}


@pytest.fixture
def retry(api: Any, owner: Any) -> Callable[..., Any]:
    """Retries an execution: `retry(id, by=…, under=agent, headers={…})`."""

    def post(execution_id: Any, *, by: Any = owner, under: Any = None, body: Any = None, headers: Any = None) -> Any:
        base = f"/api/agents/{under.name}" if under else "/api"
        return api(by).post(f"{base}/executions/{execution_id}/retry/", body, format="json", headers=headers)

    return post


def ended(answer: Any, status: str = Status.FAILED, **columns: Any) -> Execution:
    """The execution that a submit's answer names, after it has ended without a trace in the slot store."""
    Execution.objects.filter(pk=answer.json()["execution_id"]).update(
        status=status, slot_token=None, completed_at=timezone.now(), error_code="agent_error", **columns
    )
    return Execution.objects.get(pk=answer.json()["execution_id"])


@pytest.mark.parametrize("status", [Status.SUCCESS, Status.FAILED, Status.CANCELLED])
def test_a_finished_execution_is_submitted_anew_with_all_that_was_asked_for(post_task, retry, agent, status):
    first = ended(post_task("again", timeout_seconds=61, **ASKED), status)
    answer = retry(first.pk)
    row = Execution.objects.exclude(pk=first.pk).get()
    assert answer.status_code == 202
    assert answer["Location"] == f"/api/executions/{row.pk}/"
    assert answer.json() == {
        "status": "accepted", "execution_id": str(row.pk), "agent_name": agent.name, "async_mode": True, "retry_of": str(first.pk),
    }  # fmt: skip
    assert {name: getattr(row, name) for name in ASKED} == ASKED
    assert (row.message, row.timeout_seconds, row.retry_of_id, row.triggered_by, row.status) == ("again", 61, first.pk, "retry", "running")
    first.refresh_from_db()
    assert first.status == status


def test_a_retry_is_read_with_what_it_retries_under_both_paths(api, owner, post_task, retry, agent, make_agent):
    first = ended(post_task())
    answer = retry(first.pk, under=agent)
    body = api(owner).get(answer["Location"]).json()
    assert (body["retry_of"], body["triggered_by"]) == (str(first.pk), "retry")
    other = retry(first.pk, under=make_agent())
    assert (other.status_code, other.json()["code"]) == (404, "execution_not_found")


def test_what_has_not_finished_is_not_retried(post_task, retry, make_agent):
    single = make_agent(limit=1)
    runs, waits = post_task(to=single).json()["execution_id"], post_task(to=single).json()["execution_id"]
    for execution_id, status in ((runs, "running"), (waits, "queued")):
        answer = retry(execution_id)
        assert (answer.status_code, answer.json()["code"], answer.json()["execution_id"]) == (409, "not_finished", execution_id)
        assert answer.json()["detail"] == f"Execution {execution_id} is still {status}"
    assert Execution.objects.count() == 2


def test_a_retry_waits_in_line_and_is_refused_where_that_is_full(post_task, retry, make_agent):
    single = make_agent(limit=1, depth=2)
    first = ended(post_task(to=single))
    post_task(to=single)
    assert retry(first.pk).json()["queue_position"] == 2
    answer = retry(first.pk)
    assert (answer.status_code, answer.json()["code"]) == (429, "backlog_full")
    assert 1 <= int(answer["Retry-After"]) <= 300


def test_the_same_key_retries_once_and_another_execution_is_another_request(post_task, retry, agent):
    first, second = ended(post_task()), ended(post_task())
    key = {"Idempotency-Key": "once"}
    made = retry(first.pk, headers=key)
    again = retry(first.pk, headers=key)
    assert (again.status_code, again["Idempotent-Replayed"], again.json()) == (202, "true", made.json())
    assert not made.has_header("Idempotent-Replayed")
    answer = retry(second.pk, headers=key)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")
    assert retry(first.pk, headers={"Idempotency-Key": "two words"}).json()["code"] == "idempotency_malformed"
    assert Execution.objects.count() == 3


def test_whoever_may_submit_may_retry_and_the_retry_is_theirs(post_task, retry, agent, stranger, make_key):
    first = ended(post_task())
    refused = retry(first.pk, by=stranger)
    assert (refused.status_code, refused.json()["code"]) == (403, "access_denied")
    Share.objects.create(agent=agent, user=stranger)
    rows = [Execution.objects.get(pk=retry(first.pk, by=by).json()["execution_id"]) for by in (stranger, make_key("agent", agent=agent))]
    assert [(row.source_kind, row.source_name) for row in rows] == [("user", "sten"), ("agent", agent.name)]
    assert [row.submitted_by.username for row in rows] == ["sten", "olga"]


def test_a_retry_keeps_its_session_while_that_is_open_and_the_callers(post_task, retry, agent, owner, stranger):
    session = Session.objects.create(agent=agent, owner=owner)
    first = ended(post_task(session_id=str(session.pk)))
    assert Execution.objects.get(pk=retry(first.pk).json()["execution_id"]).session_id == session.pk
    Share.objects.create(agent=agent, user=stranger)
    assert retry(first.pk, by=stranger).json()["code"] == "session_not_found"
    Session.objects.update(state=Session.State.CLOSED)
    answer = retry(first.pk)
    assert (answer.status_code, answer.json()["code"]) == (409, "session_closed")


def test_a_retry_takes_no_more_time_than_its_agent_allows_now(post_task, retry, agent):
    first = ended(post_task(), timeout_seconds=5000)
    assert Execution.objects.get(pk=retry(first.pk).json()["execution_id"]).timeout_seconds == agent.execution_timeout_seconds


def test_what_is_gone_is_not_retried(post_task, retry, agent, make_agent):
    first = ended(post_task())
    assert retry(uuid.uuid4()).json()["code"] == "execution_not_found"
    type(agent).objects.filter(pk=agent.pk).update(deleted_at=timezone.now())
    make_agent(name=agent.name)
    answer = retry(first.pk)
    assert (answer.status_code, answer.json()["code"]) == (404, "agent_not_found")


def test_a_retry_takes_no_fields(post_task, retry):
    first = ended(post_task())
    assert retry(first.pk, body={"message": "other"}).json()["code"] == "unknown_field"
    assert retry(first.pk, body=[1]).json()["code"] == "invalid_body"
    assert retry(f"{first.pk}x").json()["code"] == "not_found"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("limit", [3, 1])
def test_one_deleted_for_its_age_while_it_is_retried_is_not_found(post_task, retry, make_agent, monkeypatch, limit):
    agent = make_agent(limit=limit)
    first = ended(post_task("old", to=agent))
    submit_task = retries.submit_task

    def deleted_meanwhile(**asked):
        Execution.objects.filter(pk=first.pk).delete()
        return submit_task(**asked)

    monkeypatch.setattr(retries, "submit_task", deleted_meanwhile)
    answer = retry(first.pk)
    assert (answer.status_code, answer.json()["code"]) == (404, "execution_not_found")
    assert not Execution.objects.exists()
