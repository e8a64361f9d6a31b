"""What is deleted because it is old, and what never is."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from backlog import bulk
from backlog.models import Execution, ExecutionEvent, IdempotencyKey, Status
from core.conf import conf
from fleet.models import Agent
from runtime.services import retention

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

DAY = 86_400
Age = Callable[[Execution, float], Execution]


@pytest.fixture
def ended(post_task: Callable[..., Any], agent: Agent) -> Callable[..., Execution]:
    """An execution with two events that has ended as `status`."""

    def make(status: str = Status.SUCCESS, **columns: Any) -> Execution:
        row = Execution.objects.get(pk=post_task().json()["execution_id"])
        ExecutionEvent.objects.bulk_create(ExecutionEvent(execution=row, seq=seq, type="text") for seq in (1, 2))
        Execution.objects.filter(pk=row.pk).update(**{"status": status, "completed_at": timezone.now(), "slot_token": None} | columns)
        return Execution.objects.get(pk=row.pk)

    return make


def test_old_finished_executions_go_with_their_events(ended: Any, age_row: Age) -> None:
    old = [ended(status) for status in (Status.SUCCESS, Status.FAILED, Status.CANCELLED)]
    for row in old:
        age_row(row, 90 * DAY + 60)
    young = age_row(ended(), 90 * DAY - 3600)
    assert retention.forget_old() is True
    assert list(Execution.objects.values_list("pk", flat=True)) == [young.pk]
    assert set(ExecutionEvent.objects.values_list("execution", flat=True)) == {young.pk}


def test_what_waits_runs_or_still_holds_a_slot_stays_however_old(post_task: Any, make_agent: Any, ended: Any, age_row: Age) -> None:
    agent = make_agent(limit=1)
    rows = [Execution.objects.get(pk=post_task(to=agent).json()["execution_id"]) for _ in range(2)]
    fenced = ended(slot_token=rows[0].pk)
    for row in (*rows, fenced):
        age_row(row, 400 * DAY)
    retention.forget_old()
    assert Execution.objects.count() == 3


def test_one_that_waited_long_and_ended_lately_stays(ended: Any, age_row: Age) -> None:
    row = age_row(ended(), 100 * DAY)
    Execution.objects.filter(pk=row.pk).update(completed_at=timezone.now())
    retention.forget_old()
    assert Execution.objects.filter(pk=row.pk).exists()


def test_a_retry_outlives_what_it_retried(ended: Any, age_row: Age) -> None:
    old, retry = ended(Status.FAILED), ended()
    Execution.objects.filter(pk=retry.pk).update(retry_of=old)
    age_row(old, 100 * DAY)
    retention.forget_old()
    assert Execution.objects.get().retry_of_id is None


def test_keys_go_as_soon_as_they_no_longer_count(post_task: Any, agent: Agent) -> None:
    for key in ("old", "new"):
        post_task(headers={"Idempotency-Key": key})
    stale = timedelta(seconds=conf.idempotency_seconds + 60)
    IdempotencyKey.objects.filter(key="old").update(created_at=F("created_at") - stale)
    assert retention.forget_old() is True
    assert [record.key for record in IdempotencyKey.objects.all()] == ["new"]
    assert Execution.objects.count() == 2


def test_batches_are_bounded_and_events_of_long_runs_go_in_parts(ended: Any, age_row: Age) -> None:
    rows = [age_row(ended(), 100 * DAY) for _ in range(3)]
    ninety = timedelta(days=90)
    assert bulk.forget_finished(older_than=ninety, most=3, most_events=4) == (0, True)
    assert (ExecutionEvent.objects.count(), Execution.objects.count()) == (2, len(rows))
    assert bulk.forget_finished(older_than=ninety, most=2, most_events=4) == (2, True)
    assert bulk.forget_finished(older_than=ninety, most=2, most_events=4) == (1, False)
    assert (ExecutionEvent.objects.count(), Execution.objects.count()) == (0, 0)


def test_what_is_deleted_is_not_read(ended: Any, age_row: Age, django_assert_max_num_queries: Any) -> None:
    age_row(ended(response="ten megabytes"), 100 * DAY)
    with django_assert_max_num_queries(50) as asked:
        retention.forget_old()
    assert not Execution.objects.exists()
    for column in ("message", "system_prompt", "response", "error", "metadata", "data"):
        assert [query["sql"] for query in asked.captured_queries if f'"{column}"' in query["sql"]] == []


def test_an_execution_stays_for_as_long_as_its_key_counts(post_task: Any, agent: Agent, age_row: Age, settings: Any) -> None:
    settings.TRINITY_RETENTION_DAYS = 1
    settings.TRINITY_IDEMPOTENCY_SECONDS = 7 * DAY
    asked = {"Idempotency-Key": "once"}
    row = Execution.objects.get(pk=post_task(headers=asked).json()["execution_id"])
    Execution.objects.filter(pk=row.pk).update(status=Status.SUCCESS, completed_at=timezone.now(), slot_token=None)
    age_row(row, 3 * DAY)
    retention.forget_old()
    assert post_task(headers=asked).json()["execution_id"] == str(row.pk)
    age_row(row, 5 * DAY)
    retention.forget_old()
    assert not Execution.objects.filter(pk=row.pk).exists()


def test_a_pass_that_runs_out_of_time_leaves_the_rest_to_the_next(ended: Any, age_row: Age, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        age_row(ended(), 100 * DAY)
    monkeypatch.setattr(retention, "BATCH", 1)
    monkeypatch.setattr(retention, "PASS_SECONDS", 0.0)
    assert retention.forget_old() is False
    monkeypatch.setattr(retention, "PASS_SECONDS", 10.0)
    assert retention.forget_old() is True
    assert not Execution.objects.exists()


def test_zero_days_keep_everything(ended: Any, age_row: Age, settings: Any) -> None:
    age_row(ended(), 4000 * DAY)
    settings.TRINITY_RETENTION_DAYS = 0
    assert retention.forget_old() is True
    assert Execution.objects.count() == 1
