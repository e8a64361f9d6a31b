"""The pages as the server makes them."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client, override_settings

from backlog.models import Execution, Status
from core.embedded_store import free_port
from fleet.models import Agent, Share

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]


def submitted(agent: Agent, **columns: object) -> Execution:
    """A row of the agent's, waiting unless told otherwise."""
    values = {"message": "Look at the weather", "timeout_seconds": 60, "status": Status.QUEUED} | columns
    return Execution.objects.create(agent=agent, agent_name=agent.name, **values)


@pytest.mark.parametrize(
    "path", ["/", "/dashboard/oldest-wait/", "/agents/", "/agents/a/", "/agents/a/parts/", "/account/", "/account/changed/"]
)
def test_a_stranger_is_sent_to_sign_in_and_back(client: Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer["Location"]) == (302, f"/login/?next={path}")


def test_signing_in_leads_where_one_wanted_to_go(client: Client, owner: User, valkey: redis.Redis) -> None:
    answer = client.post("/login/", {"username": "olga", "password": "olga-password", "next": "/agents/a/"})
    assert answer["Location"] == "/agents/a/"
    assert client.post("/login/?next=//elsewhere.example/", {"username": "olga", "password": "olga-password"})["Location"] == "/"


def test_a_wrong_password_is_said_on_the_form(client: Client, owner: User, valkey: redis.Redis) -> None:
    answer = client.post("/login/", {"username": "olga", "password": "wrong"})
    assert answer.status_code == 200
    assert "correct username and password" in answer.text


@override_settings(TRINITY_LOGIN_RATE="2/min")
def test_too_many_tries_are_refused_with_the_time_to_wait_even_with_the_right_password(
    client: Client, owner: User, valkey: redis.Redis
) -> None:
    for _ in range(2):
        client.post("/login/", {"username": "olga", "password": "wrong"})
    answer = client.post("/login/", {"username": "olga", "password": "olga-password"})
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= 60
    assert "Too many requests. Try again in" in answer.text


def test_without_its_store_nobody_signs_in_and_the_page_says_when_to_come_back(
    client: Client, owner: User, settings: Any, valkey: redis.Redis
) -> None:
    settings.CACHES = {"default": settings.CACHES["default"] | {"LOCATION": f"redis://127.0.0.1:{free_port()}/0"}}
    answer = client.post("/login/", {"username": "olga", "password": "olga-password"})
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) >= 1
    assert "Slot store unavailable" in answer.text
    assert "sessionid" not in client.cookies


def test_signing_out_takes_a_post(signed_in: SignIn, owner: User) -> None:
    client = signed_in(owner)
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/agents/").status_code == 302


def test_a_password_is_changed_by_who_knows_the_old_one(signed_in: SignIn, owner: User) -> None:
    client = signed_in(owner)
    new = {"new_password1": "quite-another-1", "new_password2": "quite-another-1"}
    assert client.post("/account/", {"old_password": "wrong", **new}).status_code == 200
    assert client.post("/account/", {"old_password": "olga-password", **new})["Location"] == "/account/changed/"
    owner.refresh_from_db()
    assert owner.check_password("quite-another-1")
    assert client.get("/account/changed/").status_code == 200


def test_the_agents_page_shows_a_meter_for_each_visible_agent_with_its_values(
    signed_in: SignIn, owner: User, stranger: User, make_agent: Callable[..., Agent]
) -> None:
    mine, shared = make_agent(name="mine", limit=5), make_agent(name="shared", owner=stranger)
    make_agent(name="hidden", owner=stranger)
    Share.objects.create(agent=shared, user=owner)
    submitted(mine)
    text = signed_in(owner).get("/agents/").text
    assert re.findall(r'<capacity-meter agent="([^"]+)"', text) == ["mine", "shared"]
    assert re.search(r'agent="mine" active="0" max="5" queued="1" version="\d+" height="48" width="6"', text)
    assert '<meter min="0" max="5" value="0" aria-label="mine slots">' in text


def test_a_page_without_agents_says_how_they_come(signed_in: SignIn, stranger: User) -> None:
    text = signed_in(stranger).get("/agents/").text
    assert '<div class="empty" id="empty">' in text
    assert "<capacity-meter" not in text


def test_while_the_slot_store_does_not_answer_meters_are_unknown_and_the_page_says_why(
    signed_in: SignIn, owner: User, agent: Agent, valkey: redis.Redis
) -> None:
    client = signed_in(owner)
    valkey.flushdb()  # an emptied store answers nothing until it is rebuilt
    for path in ("/", "/agents/", f"/agents/{agent.name}/"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert 'active="unknown" max="3"' in answer.text
        assert '<p class="notice notice--bad" id="unknown">' in answer.text


@pytest.mark.parametrize("path", ["/agents/{name}/", "/agents/{name}/parts/", "/agents/nobody/", "/agents/%00/", "/nowhere"])
def test_what_is_not_yours_answers_like_what_is_not_there(signed_in: SignIn, agent: Agent, stranger: User, path: str) -> None:
    answer = signed_in(stranger).get(path.format(name=agent.name))
    assert answer.status_code == 404
    assert "Not found" in answer.text


def test_pages_carry_a_strict_policy_and_nothing_inline(signed_in: SignIn, owner: User, agent: Agent) -> None:
    submitted(agent)
    client = signed_in(owner)
    for path in ("/login/", "/", "/?view=timeline", "/agents/", f"/agents/{agent.name}/", "/account/", "/nowhere"):
        answer = client.get(path, follow=True)
        assert "script-src 'self'" in answer["Content-Security-Policy"]
        assert "unsafe" not in answer["Content-Security-Policy"]
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", answer.text)
