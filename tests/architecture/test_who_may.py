"""Every endpoint, every method, every kind of caller: each is told what the table (`who_may.py`) says, and no row is missing."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone
from pytest_django import DjangoDbBlocker
from rest_framework.test import APIClient
from rest_framework_simplejwt.tokens import AccessToken

from backlog.models import Execution, Status
from capacity.manager import CapacityManager
from core.api import unknown_path
from core.redis import client
from fleet import keys, tokens
from fleet.models import Agent, ApiKey, PublicLink, Share
from fleet.principals import Principal
from fleet.public_links import create_link
from fleet.services import create_key
from runtime.services.schedules import create_schedule
from tests.architecture.who_may import (
    AGENT_NOT_FOUND,
    DEAD,
    FRIENDS,
    OWNERS,
    PERSON_REQUIRED,
    SAFE,
    STRANGERS,
    SUPERUSERS,
    SYSTEM_KEYS,
    TABLE,
    WHO,
    Cast,
    Row,
    Told,
)

pytestmark = [pytest.mark.flows, pytest.mark.django_db]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
#: Django's admin has rules and tests of its own (tests/frontend/test_admin.py).
ELSEWHERE = ("admin:",)
LEAVES_NO_TRACE = (400, 401, 403, 404, 405)
MISSING = """\
Endpoints without a row in tests/architecture/who_may.py. Add to its TABLE

{rows}

where <right> is one of PUBLIC, SIGNED_IN, READ, SUBMIT, PERSON, OWN, CHANGE, SUPERUSER, CANCEL, SYSTEM, PAGE, AGENT_PAGE
(`but={{who: told}}` for an exception), <status> what those are told who may, and <body> one that they can send."""


# -- The cast --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Stage:
    """Everybody who asks, and what they ask about."""

    cast: Cast
    clients: dict[str, APIClient]
    #: The cookies of those who have any, as they were: a request may sign out.
    cookies: dict[str, dict[str, str]]
    #: The slot store, open and idle: its keys as they are dumped.
    slots: dict[bytes, bytes]

    def open_slots(self) -> None:
        """The slot store as it was at first; filling it anew from the rows takes far longer."""
        client().flushdb()
        for key, dumped in self.slots.items():
            client().restore(key, 0, dumped)


@pytest.fixture(scope="module")
def stage(django_db_setup: None, store_server: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Stage]:
    """Made once, in a transaction that is rolled back at the end; each request has a savepoint of its own in it."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield _stage()
        transaction.set_rollback(True)


@pytest.fixture
def ask(stage: Stage, valkey: redis.Redis, settings: Any) -> Callable[..., Told]:
    """`ask(who, method, path, body)`: what they are told, and nothing of it stays."""

    def request(who: str, method: str, path: str, body: Any = None, *, form: bool = False) -> Told:
        with transaction.atomic():
            kind = {} if body is None else {"format": "multipart" if form else "json"}
            stage.clients[who].cookies = SimpleCookie(stage.cookies[who])
            answer = getattr(stage.clients[who], method.lower())(path, body, **kind)
            transaction.set_rollback(True)
        if method not in SAFE and answer.status_code not in LEAVES_NO_TRACE:
            stage.open_slots()
        is_problem = answer.get("Content-Type") == "application/problem+json"
        return answer.status_code, answer.json()["code"] if is_problem else None

    settings.TRINITY_LOGIN_RATE = settings.TRINITY_PUBLIC_RATE = "1000/min"
    stage.open_slots()
    return request


def _stage() -> Stage:
    owner, friend, stranger = (User.objects.create_user(name, password=f"{name}-password") for name in ("olga", "frida", "sten"))
    superuser = User.objects.create_superuser("root", password="root-password")
    inactive = User.objects.create_user("ina", password="ina-password")
    agent, sister, other, gone = (
        _agent(name, its_owner) for name, its_owner in (("agent", owner), ("sister", owner), ("other", stranger), ("gone", owner))
    )
    Share.objects.create(agent=agent, user=friend)
    link = create_link(principal=Principal.of_user(owner), agent=agent, name="website")
    PublicLink.objects.filter(pk=link.row.pk).update(last_used_at=timezone.now())
    client().flushdb()
    CapacityManager().rebuild()
    slots = {key: client().dump(key) for key in client().scan_iter() if client().ttl(key) == -1}
    bearers = {
        "nonsense token": "abc",
        "public link's token": link.token,
        "refresh token": tokens.issue(owner).refresh,
        "expired token": _expired(owner),
        "revoked key": _key(owner, revoked_at=timezone.now()),
        "expired key": _key(owner, expires_at=timezone.now() - timedelta(seconds=5)),
        "deleted agent's key": _key(owner, agent=gone),
        "inactive user": tokens.issue(inactive).access,
        "inactive user's key": _key(inactive),
        "owner": tokens.issue(owner).access,
        "owner's key": _key(owner),
        "friend": tokens.issue(friend).access,
        "friend's key": _key(friend),
        "stranger": tokens.issue(stranger).access,
        "stranger's key": _key(stranger),
        "agent's key": _key(owner, agent=agent),
        "sister agent's key": _key(owner, agent=sister),
        "stranger's agent's key": _key(stranger, agent=other),
        "system key": _key(superuser, scope="system"),
        "superuser": tokens.issue(superuser).access,
        "superuser's key": _key(superuser),
    }
    User.objects.filter(pk=inactive.pk).update(is_active=False)
    Agent.objects.filter(pk=gone.pk).update(deleted_at=timezone.now())
    clients = {"nobody": _client()} | {who: _client(bearer=bearer) for who, bearer in bearers.items()}
    clients |= {
        "owner's browser": _client(browser_of=owner),
        "owner's browser without CSRF": _client(browser_of=owner, csrf=False),
        "stranger's browser": _client(browser_of=stranger),
    }
    cast = Cast(
        agent=agent,
        friend=friend,
        waiting=_execution(agent, friend, status=Status.QUEUED),
        agent_key=_row_of(bearers["agent's key"]),
        owner_key=_row_of(bearers["owner's key"]),
        ended=_execution(agent, friend, status=Status.SUCCESS, response="done", completed_at=timezone.now()),
        link=link,
        by_link=_execution(agent, None, status=Status.SUCCESS, completed_at=timezone.now(), public_link=link.row),
        schedule=create_schedule(
            principal=Principal.of_user(owner), agent_name=agent.name, values={"name": "daily", "message": "m", "interval_seconds": 86_400}
        ),
    )
    cookies = {who: {name: morsel.value for name, morsel in one.cookies.items()} for who, one in clients.items()}
    return Stage(cast=cast, clients=clients, cookies=cookies, slots=slots)


def _agent(name: str, owner: User) -> Agent:
    return Agent.objects.create(name=name, owner=owner, runtime_kind="http", runtime={"url": "http://127.0.0.1:9"})


def _execution(agent: Agent, by: User | None, **columns: Any) -> Execution:
    values = {"message": "hello", "timeout_seconds": 60, "submitted_by": by, "source_name": by.username if by else ""} | columns
    return Execution.objects.create(agent=agent, agent_name=agent.name, **values)


def _key(owner: User, *, scope: str = "user", agent: Agent | None = None, **columns: Any) -> str:
    made = create_key(owner=owner, scope="agent" if agent else scope, name="key", agent=agent)
    ApiKey.objects.filter(pk=made.row.pk).update(last_used_at=timezone.now(), **columns)
    return made.key


def _row_of(key: str) -> ApiKey:
    return ApiKey.objects.get(digest=keys.digest_of(key))


def _expired(user: User) -> str:
    token = AccessToken(tokens.issue(user).access)  # type: ignore[arg-type]
    token.set_exp(from_time=timezone.now() - timedelta(hours=1))
    return str(token)


def _client(*, bearer: str | None = None, browser_of: User | None = None, csrf: bool = True) -> APIClient:
    made = APIClient(raise_request_exception=False, enforce_csrf_checks=True)
    proof = {}
    if csrf:
        made.cookies["csrftoken"] = "a" * 32
        proof = {"HTTP_X_CSRFTOKEN": "a" * 32}
    if browser_of is not None:
        made.force_login(browser_of)
    made.credentials(**proof, **({"HTTP_AUTHORIZATION": f"Bearer {bearer}"} if bearer else {}))
    return made


# -- The URL conf ----------------------------------------------------------------------------------------------------
def _endpoints(resolver: URLResolver, prefix: str = "", space: str = "") -> Iterator[tuple[str, str, Any]]:
    """Name, path and view of each pattern; of the two forms of a path the one that has a name."""
    for entry in resolver.url_patterns:
        path = prefix + str(entry.pattern)
        if isinstance(entry, URLPattern):
            if not getattr(entry.callback, "second_form", False):
                yield f"{space}{entry.name or ''}", path, entry.callback
        else:
            yield from _endpoints(entry, path, f"{space}{entry.namespace}:" if entry.namespace else space)


ENDPOINTS = {name: (path, view) for name, path, view in _endpoints(get_resolver()) if not name.startswith(ELSEWHERE)}


def _methods(view: Any) -> list[str]:
    """Those that a view's class has code for; of a plain function nobody can tell."""
    cls = getattr(view, "view_class", getattr(view, "cls", None))
    allowed = getattr(view, "view_initkwargs", {}).get("http_method_names") or getattr(cls, "http_method_names", [])
    return [method for method in METHODS if hasattr(cls, method.lower()) and method.lower() in allowed]


def _path(endpoint: str, row: Row, cast: Cast, **others: Any) -> str:
    known = cast.places() | row.at(cast) | others
    wanted = re.findall(r"<(?:\w+:)?(\w+)>", ENDPOINTS[endpoint][0])
    return reverse(endpoint, kwargs={place: known[place] for place in wanted})


def _body(row: Row, cast: Cast) -> Any:
    return row.body(cast) if callable(row.body) else row.body


# -- The table -------------------------------------------------------------------------------------------------------
ROWS = [pytest.param(name, method, TABLE[name][method], id=f"{method} {name}") for name in TABLE for method in TABLE[name]]
OF_AGENTS = [param for param in ROWS if "<str:name>" in ENDPOINTS.get(str(param.values[0]), ("", None))[0]]


def test_every_endpoint_has_a_row_for_each_of_its_methods() -> None:
    missing = [
        f'    "{name}": {{"{method}": row(<right>, <status>, <body>)}},'
        for name, (_, view) in ENDPOINTS.items()
        if view is not unknown_path
        for method in (_methods(view) or ["GET"])
        if method not in TABLE.get(name, {})
    ]
    assert not missing, MISSING.format(rows="\n".join(missing))


def test_no_row_is_left_of_an_endpoint_that_is_gone() -> None:
    assert [name for name in TABLE if name not in ENDPOINTS] == []


def test_every_path_has_a_name() -> None:
    """For a path without one has no row; the two forms of `core.urls.both` share theirs."""
    nameless = [path for name, path, view in _endpoints(get_resolver()) if name.endswith(":") or not name if view is not unknown_path]
    # The admin's are Django's to name; `admin` without its slash leads there.
    assert [path for path in nameless if path != "admin" and not path.startswith("admin/")] == []


@pytest.mark.parametrize(("name", "method", "row"), ROWS)
def test_each_caller_is_told_what_the_table_says(name: str, method: str, row: Row, stage: Stage, ask: Callable[..., Told]) -> None:
    path, body = _path(name, row, stage.cast), _body(row, stage.cast)
    told = {who: ask(who, method, path, body, form=row.form) for who in row.asked}
    assert told == {who: row.expected(who, method) for who in row.asked}


@pytest.mark.parametrize(("name", "method", "row"), OF_AGENTS)
def test_who_needs_to_be_a_person_does_not_learn_whether_an_agent_exists(
    name: str, method: str, row: Row, stage: Stage, ask: Callable[..., Told]
) -> None:
    path, body = _path(name, row, stage.cast, name="not-there"), _body(row, stage.cast)
    who = ("nobody", "nonsense token", "owner", "friend", "stranger", "agent's key", "system key", "superuser")
    told = {one: ask(one, method, path, body) for one in who}
    if row.right.get("nobody") == (302, None):
        assert told == {one: row.expected(one, method) for one in who}
        return
    unmoved = {
        one: row.expected(one, method) for one in who if row.expected(one, method)[0] == 401 or row.expected(one, method) == PERSON_REQUIRED
    }
    assert told == dict.fromkeys(who, AGENT_NOT_FOUND) | unmoved


SEEN = {
    **dict.fromkeys((*OWNERS, "agent's key", "sister agent's key"), frozenset({"agent", "sister"})),
    **dict.fromkeys(FRIENDS, frozenset({"agent"})),
    **dict.fromkeys((*STRANGERS, "stranger's agent's key"), frozenset({"other"})),
    **dict.fromkeys((*SYSTEM_KEYS, *SUPERUSERS), frozenset({"agent", "sister", "other"})),
}


@pytest.mark.usefixtures("ask")
def test_lists_hold_what_the_caller_may_see_and_nothing_else(stage: Stage) -> None:
    def listed(who: str, path: str) -> list[dict[str, Any]]:
        return stage.clients[who].get(path).json()["results"]

    assert {*SEEN} == {*WHO} - {*DEAD, "nobody"}
    for who, names in SEEN.items():
        assert {agent["name"] for agent in listed(who, "/api/agents/")} == names, who
        assert stage.clients[who].get("/api/agents/slots").json()["agents"].keys() == names, who
        assert {row["agent_name"] for row in listed(who, "/api/executions/")} == names & {"agent"}, who
    own = {who: {key["owner"] for key in listed(who, "/api/keys/") if key["scope"] == "user"} for who in ("owner", "friend", "stranger")}
    assert own == {"owner": {"olga"}, "friend": {"frida"}, "stranger": {"sten"}}
    assert {key["scope"] for key in listed("owner", "/api/keys/")} == {"user"}
    assert {key["scope"] for key in listed("superuser", "/api/keys/")} == {"user", "system"}
    assert {key["agent"] for key in listed("owner", "/api/agents/agent/keys/")} == {"agent"}


@pytest.mark.parametrize("name", TABLE)
def test_no_endpoint_answers_a_method_that_has_no_row(name: str, stage: Stage, ask: Callable[..., Told]) -> None:
    first = next(iter(TABLE[name].values()))
    is_api = ENDPOINTS[name][0].startswith("api/")
    who = "nobody" if first.expected("nobody", "GET") == first.ok else "superuser" if is_api else "owner's browser"
    refused = (405, "method_not_allowed" if is_api else None)
    path = _path(name, first, stage.cast)
    told = {method: ask(who, method, path, {} if method != "GET" else None) for method in METHODS if method not in TABLE[name]}
    assert told == dict.fromkeys(told, refused)
