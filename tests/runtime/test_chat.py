"""Conversations: turns take slots like any task, wait only while their caller is there, and at most three of an agent at once."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone

from backlog import presence
from backlog import selectors as rows
from backlog import services as backlog
from backlog.models import Execution, Status
from capacity import repairs
from capacity.manager import CapacityManager
from core.ids import new_token
from fleet.models import Agent, FleetSettings, Session, Share
from fleet.principals import Principal
from runtime import housekeeping
from runtime.services import chat
from runtime.services.submit import Submitted
from tests.runtime.conftest import Api

manager = CapacityManager()
Post = Callable[..., Any]
Say = Callable[..., Submitted]


@pytest.fixture
def single(make_agent: Callable[..., Agent]) -> Agent:
    """An agent with one slot that answers with the message it was sent."""
    return make_agent(limit=1)


@pytest.fixture
def busy(single: Agent, post_task: Post) -> Agent:
    """The same with its slot taken."""
    assert post_task("long", to=single).status_code == 202
    return single


@pytest.fixture
def say(valkey: object) -> Say:
    """A turn as the endpoint takes it, its caller held: `say(agent, "text", by=user, session_id=…)`."""

    def turn(to: Agent, message: str = "hello", *, by: User | None = None, **more: Any) -> Submitted:
        return chat.take_turn(principal=Principal.of_user(by or to.owner), name=to.name, message=message, **more)

    return turn


@pytest.fixture
def post_turn(api: Api, owner: User) -> Post:
    """A turn over HTTP, by a server that can't hold the call: `post_turn(agent, by=…, headers={…}, **body)`."""

    def post(to: Agent, message: Any = "hello", *, by: User | str = owner, headers: dict[str, str] | None = None, **body: Any) -> Any:
        return api(by).post(f"/api/agents/{to.name}/chat", {"message": message} | body, format="json", headers=headers)

    return post


def row_of(turn: Submitted) -> Execution:
    """Its row now."""
    return Execution.objects.get(pk=turn.execution_id)


# -- Sessions --------------------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_a_turn_without_a_session_begins_one_and_the_next_goes_on_with_it(
    post_turn: Post, say: Say, carry: Any, agent: Agent, owner: User
) -> None:
    key = {"Idempotency-Key": "first"}
    begun = post_turn(agent, "  How are you?\nWell?", headers=key)
    row = carry(begun.json()["execution_id"])
    answer = post_turn(agent, "  How are you?\nWell?", headers=key)
    session = Session.objects.get()
    assert (answer.status_code, answer["Idempotent-Replayed"]) == (200, "true")
    assert (answer.json()["session_id"], answer.json()["response"]) == (str(session.pk), "  How are you?\nWell?")
    assert (answer.json()["triggered_by"], answer.json()["source"]) == ("chat", {"kind": "user", "name": "olga"})
    assert (session.agent_id, session.owner_id, session.state, session.title) == (agent.pk, owner.pk, "open", "How are you?")
    assert row.session_id == session.pk
    assert row_of(say(agent, session_id=session.pk)).session_id == session.pk
    assert Session.objects.count() == 1


def test_a_session_must_be_the_agents_open_and_the_callers(
    post_turn: Post, make_agent: Any, agent: Agent, owner: User, stranger: User, superuser: User
) -> None:
    Share.objects.create(agent=agent, user=stranger)
    mine = Session.objects.create(agent=agent, owner=owner)
    elsewhere = Session.objects.create(agent=make_agent(), owner=owner)
    closed = Session.objects.create(agent=agent, owner=owner, state=Session.State.CLOSED)
    unknown = [post_turn(agent, session_id=str(one)) for one in (elsewhere.pk, uuid.uuid4())]
    unknown += [post_turn(agent, by=other, session_id=str(mine.pk)) for other in (stranger, superuser)]
    assert [(answer.status_code, answer.json()["code"]) for answer in unknown] == [(404, "session_not_found")] * 4
    answer = post_turn(agent, session_id=str(closed.pk))
    assert (answer.status_code, answer.json()["code"]) == (409, "session_closed")
    assert not Execution.objects.exists()
    assert Session.objects.count() == 3


def test_an_agents_key_speaks_in_no_session_but_its_own(
    post_turn: Post, post_task: Post, make_key: Any, agent: Agent, make_agent: Any, owner: User
) -> None:
    """Whoever speaks in a session uses its approvals, which are for people to give: a key isn't its owner there."""
    mine = Session.objects.create(agent=agent, owner=owner)
    key, sister = make_key("agent", agent=agent), make_key("agent", agent=make_agent())
    refused = [post_turn(agent, by=by, session_id=str(mine.pk)) for by in (key, sister)]
    refused.append(post_task(to=agent, by=key, session_id=str(mine.pk)))
    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(404, "session_not_found")] * 3
    post_turn(agent, by=key)
    own = Session.objects.exclude(pk=mine.pk).get()
    assert own.owner_id == owner.pk
    answers = [post_task(to=agent, by=by, session_id=str(own.pk)) for by in (key, owner, sister)]
    assert [answer.status_code for answer in answers] == [202, 202, 404]


def test_a_refused_turn_leaves_neither_a_row_nor_a_session(post_turn: Post, busy: Agent, single: Agent) -> None:
    Agent.objects.filter(pk=single.pk).update(max_backlog_depth=0)
    answer = post_turn(single)
    assert (answer.status_code, answer.json()["code"]) == (429, "backlog_full")
    assert (Execution.objects.count(), Session.objects.count()) == (1, 0)


def test_turns_of_one_session_wait_for_each_other_in_order_beside_free_slots(say: Say, agent: Agent) -> None:
    first = row_of(say(agent))
    second, third = (row_of(say(agent, session_id=first.session_id)) for _ in range(2))
    assert [(row.status, row.startable) for row in (first, second, third)] == [
        (Status.RUNNING, True), (Status.QUEUED, False), (Status.QUEUED, False),
    ]  # fmt: skip
    assert row_of(say(agent)).status == Status.RUNNING


# -- In line ---------------------------------------------------------------------------------------------------------
def test_three_turns_of_an_agent_wait_and_the_fourth_is_refused(say: Say, post_turn: Post, post_task: Post, busy: Agent) -> None:
    turns = [say(busy) for _ in range(3)]
    assert [turn.queue_position for turn in turns] == [1, 2, 3]
    answer = post_turn(busy)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "queue_full")
    assert problem["detail"] == f"Agent '{busy.name}' has 3 conversations waiting. Try again later."
    assert {name: problem[name] for name in ("active_slots", "max_parallel_tasks", "queued", "max_backlog_depth")} == {
        "active_slots": 1, "max_parallel_tasks": 1, "queued": 3, "max_backlog_depth": 50,
    }  # fmt: skip
    assert 1 <= int(answer["Retry-After"]) <= 300
    assert (Execution.objects.count(), Session.objects.count()) == (4, 3)
    assert post_task(to=busy).json()["queue_position"] == 4
    assert chat.leave(turns[0].execution_id)
    assert say(busy).queue_position is not None


@pytest.mark.django_db(transaction=True)
def test_of_a_hundred_turns_at_once_exactly_three_wait(say: Say, busy: Agent, post_turn: Post) -> None:
    gate = threading.Barrier(16)

    def one(number: int) -> str:
        if number < gate.parties:
            gate.wait(10)
        try:
            return str(say(busy).queue_position is not None)
        except Exception as refusal:  # noqa: BLE001 - counted below
            return type(refusal).__name__
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=16) as pool:
        told = Counter(pool.map(one, range(100)))
    assert told == {"True": 3, "QueueFull": 97}
    assert Execution.objects.filter(status=Status.QUEUED).count() == 3
    assert Session.objects.count() == 3


def test_a_paused_agent_takes_no_turns(post_turn: Post, make_agent: Any) -> None:
    answer = post_turn(make_agent(paused=True))
    assert (answer.status_code, answer.json()["code"]) == (503, "agent_paused")
    assert int(answer["Retry-After"]) >= 1
    assert not Session.objects.exists()


def test_a_fleet_that_rejects_at_its_cap_takes_no_turns_either(post_turn: Post, say: Say, post_task: Post, make_agent: Any) -> None:
    FleetSettings.objects.update(max_concurrent_tasks=1, on_full="reject")
    post_task(to=make_agent())
    answer = post_turn(make_agent())
    assert (answer.status_code, answer.json()["code"]) == (429, "fleet_at_capacity")
    FleetSettings.objects.update(on_full="queue")
    assert say(make_agent()).queue_position == 1


@pytest.mark.django_db(transaction=True)
def test_a_waiting_turn_starts_when_its_place_comes_and_never_above_the_limit(say: Say, busy: Agent, carry: Any) -> None:
    turn, running = say(busy, "and then?"), Execution.objects.exclude(triggered_by="chat").get()
    manager.drain(busy.pk)
    assert row_of(turn).status == Status.QUEUED
    assert [holder.execution_id for holder in manager.holders()] == [running.pk]
    carry(running.pk)
    assert (row_of(turn).status, row_of(turn).response) == (Status.SUCCESS, "and then?")


# -- Whose caller goes -----------------------------------------------------------------------------------------------
def test_a_turn_whose_caller_was_not_seen_lately_is_out_of_the_line_for_good(say: Say, busy: Agent, age_row: Any, post_task: Post) -> None:
    kept, gone = row_of(say(busy)), row_of(say(busy))
    age_row(gone, presence.SEEN_SECONDS + 1)
    age_row(kept, presence.SEEN_SECONDS - 3)
    assert [row.pk for row in rows.startable(busy.pk)] == [kept.pk]
    assert presence.note_seen([kept.pk, gone.pk, uuid.uuid4()]) == 1
    age_row(row_of_id(kept.pk), presence.SEEN_SECONDS - 3)
    assert [row.pk for row in rows.startable(busy.pk)] == [kept.pk]
    Agent.objects.filter(pk=busy.pk).update(max_parallel_tasks=3)
    assert [admission.execution_id for admission in manager.drain(busy.pk)] == [kept.pk]
    assert row_of_id(gone.pk).status == Status.QUEUED
    # Nobody is kept from a free slot by it, and of the three places it takes none.
    assert post_task(to=busy, on_full="reject").status_code == 202
    assert [say(busy).queue_position is not None for _ in range(3)] == [True] * 3


def row_of_id(execution_id: uuid.UUID) -> Execution:
    """The row now."""
    return Execution.objects.get(pk=execution_id)


def test_a_claim_that_comes_after_the_caller_went_is_lost(say: Say, busy: Agent, age_row: Any) -> None:
    kept, gone = row_of(say(busy)), row_of(say(busy))
    age_row(gone, presence.SEEN_SECONDS + 1)
    assert [backlog.claim(execution_id=row.pk, token=new_token(), number=2) for row in (gone, kept)] == [False, True]
    assert rows.agents_waiting().count() == 0


def test_housekeeping_cancels_what_waits_for_nobody_and_lets_the_next_of_its_session_start(
    say: Say, busy: Agent, owner: User, age_row: Any, post_task: Post, valkey: Any
) -> None:
    turn = row_of(say(busy))
    behind = post_task("behind", to=busy, session_id=str(turn.session_id)).json()["execution_id"]
    age_row(turn, presence.SEEN_SECONDS + 1)
    housekeeping.sweep()
    cancelled = row_of_id(turn.pk)
    assert (cancelled.status, cancelled.error_code, cancelled.started_at) == (Status.CANCELLED, "cancelled", None)
    assert row_of_id(uuid.UUID(behind)).startable
    assert repairs.counts()["caller_gone"] == 1
    assert [event.data["kind"] for event in cancelled.events.all()] == ["caller_gone"]
    housekeeping.sweep()
    assert repairs.counts()["caller_gone"] == 1


def test_a_turn_put_back_in_line_still_waits_for_its_caller(say: Say, agent: Agent, age_row: Any) -> None:
    turn = say(agent)
    age_row(row_of(turn), presence.SEEN_SECONDS - 3)
    assert presence.note_seen([turn.execution_id]) == 1
    Execution.objects.update(status=Status.QUEUED, slot_token=None, slot_number=None, granted_at=None)
    assert [row.pk for row in rows.startable(agent.pk)] == [turn.execution_id]
    age_row(row_of(turn), presence.SEEN_SECONDS + 1)
    assert not rows.startable(agent.pk).exists()


def test_who_hangs_up_in_line_is_cancelled_and_the_next_moves_up(say: Say, busy: Agent) -> None:
    first, second = say(busy), say(busy)
    assert chat.leave(first.execution_id)
    assert not chat.leave(first.execution_id)
    assert (row_of(first).status, row_of(first).error_code) == (Status.CANCELLED, "cancelled")
    assert [row.pk for row in rows.startable(busy.pk)] == [second.execution_id]


def test_who_hangs_up_with_a_slot_changes_nothing(say: Say, agent: Agent) -> None:
    granted, begun = say(agent), say(agent)
    Execution.objects.filter(pk=begun.execution_id).update(started_at=timezone.now())
    assert not chat.leave(granted.execution_id)
    assert not chat.leave(begun.execution_id)
    assert not chat.leave(uuid.uuid4())
    assert {row_of(granted).status, row_of(begun).status} == {Status.RUNNING}
    assert presence.note_seen([begun.execution_id]) == 0


def test_a_turn_with_a_key_waits_for_whoever_asks_again(post_turn: Post, busy: Agent, age_row: Any) -> None:
    key = {"Idempotency-Key": "again"}
    answer = post_turn(busy, headers=key)
    turn = Execution.objects.get(triggered_by="chat")
    assert (answer.status_code, answer.json()["code"]) == (504, "wait_timeout")
    age_row(turn, presence.SEEN_SECONDS - 3)
    seen_at = row_of_id(turn.pk).seen_at
    assert post_turn(busy, headers=key)["Idempotent-Replayed"] == "true"
    assert row_of_id(turn.pk).status == Status.QUEUED
    assert row_of_id(turn.pk).seen_at > seen_at
    assert (Execution.objects.filter(triggered_by="chat").count(), Session.objects.count()) == (1, 1)
    age_row(row_of_id(turn.pk), presence.SEEN_SECONDS + 1)
    housekeeping.sweep()
    answer = post_turn(busy, headers=key)
    assert (answer.status_code, answer.json()["code"], answer.json()["execution_id"]) == (409, "cancelled", str(turn.pk))


def test_a_key_of_a_task_is_not_answered_with_by_a_turn(post_turn: Post, post_task: Post, agent: Agent) -> None:
    assert post_task("hello", to=agent, async_mode=None, headers={"Idempotency-Key": "k"}).status_code == 504
    answer = post_turn(agent, "hello", headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")


def test_a_wait_that_runs_out_in_line_ends_the_turn(post_turn: Post, busy: Agent) -> None:
    """A server that can't hold a call is one whose caller is gone at once."""
    answer = post_turn(busy)
    turn = Execution.objects.get(triggered_by="chat")
    assert (answer.status_code, answer.json()["code"], answer.json()["execution_id"]) == (409, "cancelled", str(turn.pk))
    assert turn.status == Status.CANCELLED


def test_a_wait_that_runs_out_with_a_slot_ends_the_wait_alone(post_turn: Post, agent: Agent) -> None:
    answer = post_turn(agent)
    turn = Execution.objects.get()
    assert (answer.status_code, answer.json()["code"]) == (504, "wait_timeout")
    assert answer["Location"] == f"/api/executions/{turn.pk}/"
    assert turn.status == Status.RUNNING


# -- What is sent ----------------------------------------------------------------------------------------------------
def test_without_the_slot_store_nothing_is_taken(post_turn: Post, agent: Agent, store_out_of_reach: Any) -> None:
    store_out_of_reach(True)
    answer = post_turn(agent)
    assert (answer.status_code, answer.json()["code"]) == (503, "slots_unavailable")
    assert (Execution.objects.count(), Session.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "message is required"),
        ({"message": " \n"}, "message must not be blank"),
        ({"message": "x" * 100_001}, "message must be text of 1 to 100000 characters"),
        ({"message": ["hello"]}, "message must be text of 1 to 100000 characters"),
        ({"message": "m", "session_id": "mine"}, "session_id must be a UUID"),
        ({"message": "m", "session_id": 7}, "session_id must be a UUID"),
        ({"message": "m", "async_mode": True}, "Unknown field 'async_mode'; the valid fields are message, session_id"),
        ({"message": "m", "timeout_seconds": 5}, "Unknown field 'timeout_seconds'; the valid fields are message, session_id"),
    ],
)
def test_a_wrong_field_is_named(api: Api, agent: Agent, owner: User, body: dict[str, Any], detail: str) -> None:
    answer = api(owner).post(f"/api/agents/{agent.name}/chat", body, format="json")
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)
    assert not Execution.objects.exists()


@pytest.mark.parametrize(
    "body", ["", "[]", "null", "{", '{"message": NaN}', "[" * 100_000, '{"message": "a\\u0000"}', '{"message": "\\ud800"}']
)
def test_what_is_no_turn_never_breaks(api: Api, agent: Agent, owner: User, body: str) -> None:
    answer = api(owner).generic("POST", f"/api/agents/{agent.name}/chat", body, content_type="application/json")
    assert answer.status_code == 400
    assert not Execution.objects.exists()


def test_a_turn_may_be_long_a_body_not_endless_and_a_query_empty(api: Api, post_turn: Post, agent: Agent, owner: User) -> None:
    assert post_turn(agent, "ü" * 100_000).status_code == 504
    assert (post_turn(agent, "x" * 5_000_000).status_code, post_turn(agent, headers={"Idempotency-Key": "a b"}).status_code) == (413, 400)
    answer = api(owner).post(f"/api/agents/{agent.name}/chat/?wait=1", {"message": "m"}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_parameter")


def test_who_may_not_submit_may_not_talk(api: Api, post_turn: Post, make_key: Any, agent: Agent, stranger: User, owner: User) -> None:
    answer = api(None).post(f"/api/agents/{agent.name}/chat", {"message": "m"}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert (post_turn(agent, by=stranger).status_code, post_turn(agent, by=stranger).json()["code"]) == (403, "access_denied")
    unknown = api(owner).post("/api/agents/nobody/chat", {"message": "m"}, format="json")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "agent_not_found")
    assert post_turn(agent, by=make_key("agent", agent=agent)).status_code == 504
    assert Session.objects.get().owner_id == owner.pk
