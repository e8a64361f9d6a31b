"""Publishing to a broker that is really gone: an answer, never an error of the request, and soon."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.conf import settings

from backlog.models import Execution, Status
from capacity.leases import Admission, Lease
from fleet.models import Agent
from runtime import dispatch
from runtime.services import repair
from tests.stores import OwnStore
from trinity.celery import app

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnStore]:
    """A broker of this test's own that everything publishes to; it is not started yet."""
    server = OwnStore(tmp_path)
    monkeypatch.setattr(dispatch, "broker", dispatch._Broker())
    publisher = Celery("test", broker=server.url)
    publisher.config_from_object("django.conf:settings", namespace="CELERY")
    publisher.conf.broker_url = server.url
    publisher.set_current()
    yield server
    app.set_current()
    publisher.close()
    server.kill()


def waiting(broker: OwnStore) -> int:
    """How many messages wait on the broker."""
    with broker.client() as client:
        return client.llen(f"celery:{settings.CELERY_TASK_DEFAULT_QUEUE}")  # type: ignore[return-value]


def admission_of(row: Execution) -> Admission:
    """What admitted the granted row."""
    assert row.slot_token is not None
    return Admission(lease=Lease(agent=row.agent_name, execution_id=row.pk, token=row.slot_token, timeout_seconds=60, number=1))


def test_a_publish_that_fails_leaves_the_row_granted_for_the_sweep_and_rests(
    broker: OwnStore, agent: Agent, post_task: Callable[..., Any], age_row: Callable[..., None]
) -> None:
    broker.start()
    granted = Execution.objects.get(pk=post_task().json()["execution_id"])
    assert waiting(broker) == 1

    broker.kill()
    began = time.monotonic()
    dispatch.start([admission_of(granted)])
    assert time.monotonic() - began < 10
    granted.refresh_from_db()
    assert (granted.status, granted.dispatched_at, granted.dispatches) == (Status.RUNNING, None, 0)
    assert granted.slot_token is not None
    assert dispatch.broker.rests()

    assert post_task().status_code == 202

    broker.start()
    dispatch.broker.recovered()
    dispatch.start([admission_of(granted)])
    assert waiting(broker) == 1  # the server came back empty
    assert not dispatch.broker.rests()


def test_a_fault_of_the_publishing_library_fails_no_accepted_request(
    broker: OwnStore, post_task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed_channel(*_args: object, **_kwargs: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'client'")

    broker.start()
    with monkeypatch.context() as patch:
        patch.setattr(Celery, "send_task", closed_channel)
        answer = post_task()
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    granted = Execution.objects.get(pk=answer.json()["execution_id"])
    assert (granted.status, granted.dispatched_at) == (Status.RUNNING, None)
    repair.dispatch_again()
    assert waiting(broker) == 1
