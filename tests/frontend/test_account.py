"""One's own keys on the account page."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from fleet.models import ApiKey, AuditEntry
from fleet.services import create_key

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture
def olga(owner: User, valkey: redis.Redis) -> Client:
    """A browser in which the owner is signed in."""
    client = Client()
    client.force_login(owner)
    return client


def test_a_key_made_on_the_page_is_shown_once_and_works(olga: Client, api: Callable[..., Any], owner: User) -> None:
    answer = olga.post("/account/keys/", {"name": "my <b>script", "days": ""})
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    [key] = re.findall(r'<code id="new-key">(trinity_[\w-]+)</code>', answer.text)
    assert "my &lt;b&gt;script" in answer.text
    assert api(key).get("/api/agents/").status_code == 200
    page = olga.get("/account/").text
    assert key not in page
    assert f"{key[:16]}…" in page
    row = ApiKey.objects.get()
    assert (row.scope, row.owner, row.expires_at) == ("user", owner, None)
    assert [entry.action for entry in AuditEntry.objects.all()] == ["key_made"]


def test_a_key_is_made_for_some_days(olga: Client) -> None:
    olga.post("/account/keys/", {"name": "short", "days": "7"})
    assert abs(ApiKey.objects.get().expires_at - timezone.now() - timedelta(days=7)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "data", [{}, {"name": ""}, {"name": "x" * 101}, {"name": "a", "days": "0"}, {"name": "a", "days": "1e9"}, {"name": "a\0"}]
)
def test_what_makes_no_key_is_said_on_the_page_beside_both_forms(olga: Client, data: dict[str, str]) -> None:
    answer = olga.post("/account/keys/", data)
    assert answer.status_code == 200
    assert 'class="field__error"' in answer.text
    assert 'name="old_password"' in answer.text
    assert not ApiKey.objects.exists()


def test_a_key_is_revoked_once_that_was_confirmed(olga: Client, api: Callable[..., Any], owner: User) -> None:
    made = create_key(owner=owner, scope="user", name="old")
    path = f"/account/keys/{made.row.pk}/"
    assert f'href="{path}"' in olga.get("/account/").text
    assert "Revoke the key" in olga.get(path).text
    assert api(made.key).get("/api/agents/").status_code == 200
    assert olga.post(path)["Location"] == "/account/"
    assert api(made.key).get("/api/agents/").status_code == 401
    assert "You have none." in olga.get("/account/").text


def test_nobody_sees_or_revokes_keys_that_are_not_their_own(olga: Client, owner: User, stranger: User, superuser: User, agent: Any) -> None:
    others = [
        create_key(owner=stranger, scope="user", name="theirs"),
        create_key(owner=superuser, scope="system", name="system's"),
        create_key(owner=owner, scope="agent", agent=agent, name="agent's"),
    ]
    assert "You have none." in olga.get("/account/").text
    for made in others:
        for answer in (olga.get(f"/account/keys/{made.row.pk}/"), olga.post(f"/account/keys/{made.row.pk}/")):
            assert answer.status_code == 404
    assert not ApiKey.objects.exclude(revoked_at=None).exists()


def test_the_pages_of_keys_have_nothing_inline(olga: Client, owner: User) -> None:
    made = create_key(owner=owner, scope="user", name="old")
    for answer in (olga.get("/account/"), olga.get(f"/account/keys/{made.row.pk}/"), olga.post("/account/keys/", {"name": "a"})):
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", answer.text)
