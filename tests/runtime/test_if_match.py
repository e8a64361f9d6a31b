"""Changes of settings that were read before: made only while what was read still stands."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from rest_framework.test import APIClient

from fleet.models import Agent, AuditEntry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

Api = Callable[[User | str | None], APIClient]
CAPACITY, AGENT = "/api/agents/{name}/capacity", "/api/agents/{name}/"
CEILING, CAP = "/api/settings/max-parallel-tasks-ceiling", "/api/settings/max-concurrent-tasks"
#: Path, method, and a body that changes something for each number.
WRITES: dict[str, tuple[str, str, Callable[[int], dict[str, Any]]]] = {
    "capacity": (CAPACITY, "put", lambda number: {"max_parallel_tasks": number}),
    "agent": (AGENT, "patch", lambda number: {"description": f"number {number}"}),
    "ceiling": (CEILING, "put", lambda number: {"value": number}),
    "cap": (CAP, "put", lambda number: {"value": number}),
}
every_write = pytest.mark.parametrize("what", WRITES)


@pytest.fixture
def change(api: Api, superuser: User, agent: Agent) -> Callable[..., Any]:
    """`change(what, number, if_match)`."""

    def send(what: str, number: int, if_match: str | None = None) -> Any:
        path, method, body = WRITES[what]
        headers = None if if_match is None else {"If-Match": if_match}
        return getattr(api(superuser), method)(path.format(name=agent.name), body(number), format="json", headers=headers)

    return send


@pytest.fixture
def tag(api: Api, superuser: User, agent: Agent) -> Callable[[str], str]:
    """The tag that a GET tells."""
    with_agent = {"capacity": AGENT}  # the same settings, and no slot store asked

    def read(what: str) -> str:
        answer = api(superuser).get(with_agent.get(what, WRITES[what][0]).format(name=agent.name))
        assert answer.status_code == 200
        return answer["ETag"]

    return read


@every_write
def test_a_change_is_made_only_while_what_was_read_still_stands(change: Any, tag: Any, what: str) -> None:
    seen = tag(what)
    first = change(what, 4, seen)
    assert (first.status_code, first["ETag"]) == (200, tag(what))
    assert first["ETag"] != seen
    refused = change(what, 5, seen)
    assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed")
    assert refused.json()["detail"] == "The settings changed since you read them"
    assert tag(what) == first["ETag"]
    assert change(what, 5, first["ETag"]).status_code == 200
    assert change(what, 6).status_code == 200, "whoever doesn't ask isn't refused"
    assert AuditEntry.objects.count() == 3


@every_write
def test_forms_of_if_match(change: Any, tag: Any, what: str) -> None:
    taken = ['{}', '"x", {}', '"x",{},"y"', ' {} , W/"7"', "*", " * ", '"a, b", {}']  # fmt: skip
    refused = [
        "W/{}",
        '"x"',
        '"x", W/{}',
        '""',
        "",
        " ",
        "{}x",
        "bare",
        "W/",
        '"',
        '"-1"',
        '"01"',
        '"1.0"',
        f'"{10**40}"',
        "\xe9",
        chr(34) + "\xe9" + chr(34),
    ]
    for number, form in enumerate(refused):
        before = tag(what)
        assert change(what, 4 + number % 6, form.format(before)).status_code == 412, form
        assert tag(what) == before
    bare = change(what, 4, tag(what).strip('"'))
    assert bare.status_code == 412, "a version without its quotes is no tag"
    for number, form in enumerate(taken):
        answer = change(what, 4 + number % 6, form.format(tag(what)))
        assert answer.status_code == 200, form


@every_write
def test_who_may_not_or_says_nothing_valid_is_told_that_first(api: Api, stranger: User, superuser: User, agent: Agent, what: str) -> None:
    path, method, _ = WRITES[what]
    told = [getattr(api(who), method)(path.format(name=agent.name), {"value": []}, format="json", headers={"If-Match": '"no"'}).status_code
            for who in (None, stranger, superuser)]  # fmt: skip
    assert told == [401, 403, 400]


@every_write
def test_of_changes_sent_at_once_on_one_version_one_is_made(change: Any, tag: Any, what: str) -> None:
    seen, count = tag(what), 6
    barrier, told = threading.Barrier(count), []

    def send(number: int) -> None:
        barrier.wait()
        try:
            told.append(change(what, number, seen).status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send, args=(4 + number,)) for number in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert Counter(told) == {200: 1, 412: count - 1}
    assert AuditEntry.objects.count() == 1
