"""What anybody can do who has a public link: send its agent messages, and read what became of theirs."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.utils import timezone

from backlog.models import Execution, Status
from core.api import problem_response
from core.errors import TrinityError
from fleet import public_links
from fleet.models import Agent, FleetSettings, PublicLink
from fleet.principals import Principal
from fleet.public_links import NewLink
from runtime.waiting import EndOfTask
from tests.runtime.conftest import Api

SHOWN = {"id", "status", "response", "error_code", "completed_at"}


@pytest.fixture
def make_link(owner: User) -> Callable[..., NewLink]:
    """A new link to an agent."""

    def make(agent: Agent, name: str = "website") -> NewLink:
        return public_links.create_link(principal=Principal.of_user(owner), agent=agent, name=name)

    return make


@pytest.fixture
def link(make_link: Any, agent: Agent) -> NewLink:
    """A link to `agent`."""
    made: NewLink = make_link(agent)
    return made


@pytest.fixture
def visit(api: Api) -> Callable[..., Any]:
    """A visitor's message: `visit(link, "hello", address=…, headers={…}, **body)`; asynchronous unless the body says otherwise."""

    def post(to: NewLink | str, message: Any = "hello", *, address: str = "198.51.100.1", headers: Any = None, **body: Any) -> Any:
        token = to if isinstance(to, str) else to.token
        data = {name: value for name, value in ({"message": message, "async_mode": True} | body).items() if value is not None}
        return api(None).post(f"/api/public/chat/{token}", data, format="json", headers=headers, REMOTE_ADDR=address)

    return post


def read(api: Api, link: NewLink, execution_id: Any) -> Any:
    """What the link's visitors are told of an execution."""
    return api(None).get(f"/api/public/executions/{link.token}/{execution_id}")


# -- Messages --------------------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_a_visitors_message_runs_and_its_answer_is_read_by_the_link(
    visit: Any, api: Api, carry: Any, link: NewLink, agent: Agent, owner: User
) -> None:
    answer = visit(link, "who are you?")
    row = Execution.objects.get()
    assert (answer.status_code, answer.json()) == (202, {"status": "accepted", "execution_id": str(row.pk), "async_mode": True})
    assert answer["Location"] == f"/api/public/executions/{link.token}/{row.pk}"
    assert answer["Cache-Control"] == "no-store"
    assert (row.triggered_by, row.source_kind, row.source_name, row.public_link_id) == ("public", "public", "website", link.row.pk)
    assert (row.submitted_by_id, row.session_id, row.timeout_seconds) == (None, None, agent.execution_timeout_seconds)
    running = read(api, link, row.pk)
    assert running.json() == {"id": str(row.pk), "status": "running", "response": None, "error_code": None, "completed_at": None}
    carry(row.pk)
    ended = read(api, link, row.pk)
    assert (ended.status_code, ended["Cache-Control"], set(ended.json())) == (200, "no-store", SHOWN)
    assert (ended.json()["status"], ended.json()["response"]) == ("success", "who are you?")
    assert ended.json()["completed_at"].endswith("Z")
    mine = api(owner).get(f"/api/executions/{row.pk}/").json()
    assert (mine["triggered_by"], mine["source"]) == ("public", {"kind": "public", "name": "website"})


def test_a_visitor_who_waits_is_told_the_same_and_nothing_of_the_inside(visit: Any, link: NewLink, api: Api, settings: Any) -> None:
    answer = visit(link, async_mode=None)
    row = Execution.objects.get()
    assert (answer.status_code, answer.json()["code"]) == (504, "wait_timeout")
    assert answer["Location"] == f"/api/public/executions/{link.token}/{row.pk}"
    answer = visit(link, async_mode=None, headers={"Prefer": "wait=1"})
    assert (answer.status_code, answer["Preference-Applied"]) == (202, "wait=1")


@pytest.mark.parametrize(("kept", "status", "code"), [("agent_error", 502, "agent_error"), ("timeout", 504, "timeout")])
def test_a_failure_is_told_without_the_agents_own_words(
    api: Api, link: NewLink, visit: Any, monkeypatch: pytest.MonkeyPatch, kept: str, status: int, code: str
) -> None:
    visit(link)
    row = Execution.objects.get()
    Execution.objects.update(
        status=Status.FAILED, slot_token=None, completed_at=timezone.now(), error_code=kept, error="/srv/secret/path broke"
    )
    told = read(api, link, row.pk)
    assert (told.json()["status"], told.json()["error_code"], set(told.json())) == ("failed", kept, SHOWN)
    from_waiting = failed(row.pk)
    assert (from_waiting.status, code in from_waiting.body.decode(), b"secret" in from_waiting.body) == (status, True, False)


def failed(execution_id: uuid.UUID) -> Any:
    """What a visitor is told who waited for it."""
    answer = EndOfTask(execution_id=execution_id, late=lambda row: pytest.fail("it has ended"), body=lambda row: {})
    try:
        return answer(timed_out=False)
    except TrinityError as error:
        return problem_response(error)


def test_a_full_agent_refuses_visitors_in_both_manners_without_figures(visit: Any, post_task: Any, make_agent: Any, make_link: Any) -> None:
    single = make_agent(limit=1)
    link = make_link(single)
    post_task(to=single)
    for mode in (True, None):
        answer = visit(link, async_mode=mode)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (429, "at_capacity")
        assert problem["detail"] == f"Agent '{single.name}' is at capacity (1 parallel tasks). Try again later."
        assert set(problem) == {"type", "title", "status", "detail", "code"}
        assert int(answer["Retry-After"]) >= 1
    assert Execution.objects.count() == 1


def test_a_paused_agent_and_a_full_fleet_refuse_visitors(visit: Any, post_task: Any, make_agent: Any, make_link: Any) -> None:
    link = make_link(make_agent(paused=True))
    answer = visit(link)
    assert (answer.status_code, answer.json()["code"]) == (503, "agent_paused")
    FleetSettings.objects.update(max_concurrent_tasks=1)
    post_task(to=make_agent())
    answer = visit(make_link(make_agent()))
    assert (answer.status_code, answer.json()["code"]) == (429, "fleet_at_capacity")
    assert "running" not in answer.json()


# -- Whose it is -----------------------------------------------------------------------------------------------------
def test_a_visitor_sees_only_what_came_by_this_link(
    visit: Any, api: Api, post_task: Any, agent: Agent, link: NewLink, make_link: Any, owner: User
) -> None:
    other = make_link(agent, "another")
    theirs = visit(other).json()["execution_id"]
    mine = visit(link).json()["execution_id"]
    owners = post_task(to=agent).json()["execution_id"]
    assert read(api, link, mine).status_code == 200
    unknown = [read(api, link, one) for one in (theirs, owners, uuid.uuid4(), "nonsense")] + [read(api, other, mine)]
    assert [(answer.status_code, answer.json()["code"], answer.json()["detail"]) for answer in unknown] == [
        (404, "not_found", "Not found")
    ] * 5
    assert api(None).get(f"/api/executions/{mine}/").status_code == 401
    assert api(link.token).get("/api/agents/").json()["code"] == "invalid_token"


def test_an_unknown_or_revoked_link_or_one_of_a_deleted_agent_is_not_found(
    visit: Any, api: Api, link: NewLink, make_agent: Any, make_link: Any
) -> None:
    gone = make_link(make_agent())
    done = visit(link).json()["execution_id"]
    PublicLink.objects.filter(pk=link.row.pk).update(revoked_at=timezone.now())
    Agent.objects.filter(pk=gone.row.agent_id).update(deleted_at=timezone.now())
    for answer in (
        visit(link), visit(gone), visit("link_unknown"), visit("%00"), visit("ü"), read(api, link, done),
        api(None).post(f"/api/public/chat/{link.token}", {"nonsense": 1}, format="json"),
    ):  # fmt: skip
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert Execution.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lost", ["revoked", "row gone"])
def test_what_came_by_a_link_that_is_gone_by_its_turn_fails_as_access_lost(
    visit: Any, carry: Any, link: NewLink, agent: Agent, lost: str
) -> None:
    visit(link)
    row = Execution.objects.get()
    # Granted, not begun; its claim may be undone, and it waits in line.
    if lost == "revoked":
        PublicLink.objects.update(revoked_at=timezone.now())
    else:
        PublicLink.objects.all().delete()
    failed = carry(row.pk)
    assert (failed.status, failed.error_code, failed.started_at) == (Status.FAILED, "access_lost", None)


# -- How often -------------------------------------------------------------------------------------------------------
def test_the_31st_request_of_an_address_in_a_minute_is_refused_whatever_the_link(
    visit: Any, api: Api, make_agent: Any, make_link: Any, link: NewLink, settings: Any
) -> None:
    other = make_link(make_agent(limit=32))
    answers = [visit("link_unknown") for _ in range(28)] + [visit(other), visit(link)]
    assert [answer.status_code for answer in answers] == [404] * 28 + [202] * 2
    refused = visit(other)
    seconds = int(refused["Retry-After"])
    assert (refused.status_code, refused.json()["code"]) == (429, "throttled")
    assert refused.json()["detail"] == f"Too many requests. Try again in {seconds} seconds."
    assert 1 <= seconds <= 60
    assert visit(link).status_code == 429
    assert visit(other, address="198.51.100.2").status_code == 202
    # Reading goes on, and no header of the visitor's own makes another visitor of them.
    assert read(api, other, answers[28].json()["execution_id"]).status_code == 200
    assert visit(other, headers={"X-Forwarded-For": "198.51.100.3"}).status_code == 429
    settings.TRINITY_TRUSTED_PROXIES = ("198.51.100.0/24",)
    assert visit(other, headers={"X-Forwarded-For": "203.0.113.1"}).status_code == 202


def test_behind_a_trusted_proxy_each_of_its_clients_is_counted_alone(visit: Any, make_agent: Any, make_link: Any, settings: Any) -> None:
    settings.TRINITY_TRUSTED_PROXIES = ("10.0.0.0/8",)
    settings.TRINITY_PUBLIC_RATE = "2/min"
    link = make_link(make_agent(limit=32))
    told = [
        visit(link, address="10.0.0.1", headers={"X-Forwarded-For": client}).status_code
        for client in (
            "203.0.113.1",
            "203.0.113.2",
            "7.7.7.7, 203.0.113.1",
            "8.8.8.8, 203.0.113.1",
            "2001:db8::1",
            "2001:db8::2",
            "2001:db8::3",
        )
    ]
    assert told == [202, 202, 202, 429, 202, 202, 429]


def test_a_minute_later_the_visitor_may_speak_again(visit: Any, link: NewLink, settings: Any) -> None:
    settings.TRINITY_PUBLIC_RATE = "1/min"
    assert [visit(link).status_code, visit(link).status_code] == [202, 429]
    cache.delete("public:198.51.100.1")
    assert visit(link).status_code == 202


def test_without_the_store_that_counts_nobody_is_let_in(visit: Any, link: NewLink, store_out_of_reach: Any) -> None:
    store_out_of_reach(True)
    answer = visit(link)
    assert (answer.status_code, answer.json()["code"]) == (503, "slots_unavailable")
    assert int(answer["Retry-After"]) >= 1
    assert not Execution.objects.exists()


# -- What is sent ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"message": None}, "message is required"),
        ({"message": " "}, "message must not be blank"),
        ({"message": "x" * 100_001}, "message must be text of 1 to 100000 characters"),
        ({"message": {"a": 1}}, "message must be text of 1 to 100000 characters"),
        ({"async_mode": "yes"}, "async_mode must be true or false"),
        ({"on_full": "queue"}, "Unknown field 'on_full'; the valid fields are message, async_mode"),
        ({"session_id": str(uuid.uuid4())}, "Unknown field 'session_id'; the valid fields are message, async_mode"),
        ({"timeout_seconds": 7200}, "Unknown field 'timeout_seconds'; the valid fields are message, async_mode"),
    ],
)
def test_a_wrong_field_is_named(visit: Any, link: NewLink, body: dict[str, Any], detail: str) -> None:
    answer = visit(link, **body)
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)
    assert not Execution.objects.exists()


def test_hostile_bodies_and_queries_never_break(api: Api, visit: Any, link: NewLink) -> None:
    path, client = f"/api/public/chat/{link.token}", api(None)
    bodies = ("", "[]", "null", "{", '{"message": NaN}', "[" * 100_000, '{"message": "a\\u0000"}', '{"message": "\\ud800"}')
    told = [client.generic("POST", path, body, content_type="application/json").status_code for body in bodies]
    assert told == [400] * len(bodies)
    assert client.generic("POST", path, "message=m", content_type="application/x-www-form-urlencoded").status_code == 415
    assert visit(link, "x" * 5_000_000).status_code == 413
    assert client.post(f"{path}?a=1", {"message": "m"}, format="json").json()["code"] == "unknown_parameter"
    assert client.get(f"/api/public/executions/{link.token}/{uuid.uuid4()}?wait=1").status_code in {400, 404}
    assert client.get(path).status_code == 405
    assert not Execution.objects.exists()


def test_credentials_are_not_looked_at(api: Api, link: NewLink) -> None:
    client = api("trinity_nonsense")
    assert client.post(f"/api/public/chat/{link.token}/", {"message": "m", "async_mode": True}, format="json").status_code == 202
