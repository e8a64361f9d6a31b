"""Rows at the head of a line that can't be run: they fail with a reason, and the next one starts at once."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.utils import timezone

from backlog.models import Execution, Status
from core.events import CHANNEL
from fleet.models import Agent, ApiKey, Share
from runtime.services import runs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

Post = Callable[..., Any]


@pytest.fixture
def single(make_agent: Callable[..., Agent]) -> Agent:
    """An agent with one slot that answers with the message it was sent."""
    return make_agent(limit=1)


def row(answer: Any) -> Execution:
    """The row of a submit."""
    assert answer.status_code == 202, answer.content
    return Execution.objects.get(pk=answer.json()["execution_id"])


def seen(execution: Execution) -> tuple[str, str, str | None]:
    """Status, code and response as they are now."""
    execution.refresh_from_db()
    return execution.status, execution.error_code, execution.response


def carry(execution: Execution) -> None:
    """As a worker carries it, and what is in line after it."""
    execution.refresh_from_db()
    assert execution.slot_token is not None
    runs.run_execution(execution_id=execution.pk, token=execution.slot_token)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"message": " \n"}, "message"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"allowed_tools": {"not": "a list"}}, "allowed_tools"),
        ({"allowed_tools": ["read", 7]}, "allowed_tools"),
        ({"max_turns": 0}, "max_turns"),
        ({"metadata": [], "message": ""}, "message, metadata"),
    ],
)
def test_a_corrupt_request_fails_with_its_reason_and_the_next_starts_at_once(
    post_task: Post, single: Agent, columns: dict[str, Any], named: str
) -> None:
    first, corrupt, third = (row(post_task(text, to=single)) for text in ("first", "corrupt", "third"))
    Execution.objects.filter(pk=corrupt.pk).update(**columns)
    carry(first)
    assert seen(corrupt) == (Status.FAILED, "invalid_request", None)
    assert corrupt.error == f"The stored request can't be run: {named}"
    assert (corrupt.started_at, corrupt.slot_token, corrupt.completed_at is not None) == (None, None, True)
    assert seen(first)[0] == seen(third)[0] == Status.SUCCESS
    assert third.response == "third"


def test_a_caller_who_lost_access_is_not_served_and_the_next_is(
    post_task: Post, single: Agent, stranger: User, valkey: redis.Redis
) -> None:
    share = Share.objects.create(agent=single, user=stranger)
    first = row(post_task("first", to=single))
    theirs, third = row(post_task("theirs", to=single, by=stranger)), row(post_task("third", to=single))
    share.delete()
    with valkey.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(CHANNEL)
        listener.get_message(timeout=1)
        carry(first)
        told = []
        while (message := listener.get_message(timeout=0.2)) is not None:
            told.append(str(message["data"]))
    assert seen(theirs) == (Status.FAILED, "access_lost", None)
    assert theirs.error == "The caller may no longer use this agent"
    assert any(str(theirs.pk) in text and "execution.finished" in text for text in told)
    assert seen(third) == (Status.SUCCESS, "", "third")


def test_many_at_the_head_that_can_not_be_run_hold_up_nobody(post_task: Post, single: Agent, stranger: User) -> None:
    share = Share.objects.create(agent=single, user=stranger)
    first = row(post_task("first", to=single))
    theirs = [row(post_task("theirs", to=single, by=stranger)) for _ in range(5)]
    last = row(post_task("last", to=single))
    share.delete()
    carry(first)
    for one in theirs:
        if seen(one)[0] == Status.RUNNING:  # granted by a drain: its message is on its way to a worker
            assert one.slot_token is not None
            runs.run_execution(execution_id=one.pk, token=one.slot_token)
        assert seen(one)[1] == "access_lost"
    if seen(last)[0] == Status.RUNNING:
        carry(last)
    assert seen(last)[0] == Status.SUCCESS


def test_a_granted_row_is_looked_at_before_it_starts(post_task: Post, single: Agent, stranger: User) -> None:
    share = Share.objects.create(agent=single, user=stranger)
    theirs, mine = row(post_task("theirs", to=single, by=stranger)), row(post_task("mine", to=single))
    share.delete()
    carry(theirs)
    assert seen(theirs) == (Status.FAILED, "access_lost", None)
    assert seen(mine)[0] == Status.RUNNING


def test_access_is_lost_by_a_person_who_was_shut_out_and_a_key_that_was_revoked(
    post_task: Post, make_agent: Callable[..., Agent], make_key: Callable[..., str], stranger: User, superuser: User
) -> None:
    agent = make_agent(limit=1)
    Share.objects.create(agent=agent, user=stranger)
    first = row(post_task("first", to=agent))
    shut_out = row(post_task(to=agent, by=stranger))
    kept = row(post_task("kept", to=agent, by=make_key("system", owner=superuser)))
    revoked = row(post_task(to=agent, by=make_key("agent", agent=agent)))
    expired = row(post_task("expired", to=agent, by=make_key("user")))
    ApiKey.objects.filter(pk=revoked.submitted_key_id).update(revoked_at=timezone.now())
    ApiKey.objects.filter(pk=expired.submitted_key_id).update(expires_at=timezone.now())
    User.objects.filter(pk=stranger.pk).update(is_active=False)
    carry(first)
    for one in (shut_out, kept, revoked, expired):
        if seen(one)[0] == Status.RUNNING:
            carry(one)
    assert [seen(one)[:2] for one in (shut_out, revoked)] == [(Status.FAILED, "access_lost")] * 2
    # One that merely ran out was good when the task was accepted.
    assert [seen(one)[0] for one in (kept, expired)] == [Status.SUCCESS] * 2


def test_an_agent_that_changed_hands_serves_its_new_owner_alone(
    post_task: Post, single: Agent, stranger: User, make_key: Callable[..., str]
) -> None:
    first = row(post_task("first", to=single, by=make_key("agent", agent=single)))
    former = row(post_task("former", to=single))
    Agent.objects.filter(pk=single.pk).update(owner=stranger)
    new = row(post_task("new", to=single, by=stranger))
    carry(first)
    assert seen(first)[0] == Status.SUCCESS  # the agent's own key stays its own
    assert seen(former)[1] == "access_lost"
    if seen(new)[0] == Status.RUNNING:
        carry(new)
    assert seen(new)[0] == Status.SUCCESS
