"""Credentials: which ones work, and what the others are told."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import get_resolver
from django.utils import timezone
from rest_framework.test import APIClient
from rest_framework_simplejwt.tokens import AccessToken, RefreshToken

from fleet import keys, tokens
from fleet.models import ApiKey

NOT_PROVIDED = (401, "not_authenticated", "Authentication credentials were not provided.")
INVALID = (401, "invalid_token", "Invalid token.")
CSRF = (403, "csrf_failed", "CSRF check failed")
SOURCE = (403, "source_agent_forbidden", "X-Source-Agent does not match the credential")


def told(answer):
    assert answer["Content-Type"] == "application/problem+json"
    assert (answer.get("WWW-Authenticate") == "Bearer") is (answer.status_code == 401)
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


def get(client, **headers):
    return client.get("/api/agents/", headers={name.replace("_", "-"): value for name, value in headers.items()})


def fleet_paths():
    for pattern in get_resolver("fleet.urls").url_patterns:
        if "token" not in str(pattern.pattern):
            yield "/api/" + re.sub(r"<\w+:\w+>", "1", str(pattern.pattern))


@pytest.mark.parametrize("path", list(fleet_paths()))
@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete", "options"])
def test_without_credentials_every_path_is_a_401(path, method, api):
    assert told(getattr(api(None), method)(path)) == NOT_PROVIDED


@pytest.mark.parametrize("header", ["", "Basic b2xnYTpvbGdh", "Token abc", "Bearerabc"])
def test_another_scheme_is_as_good_as_none(header, api):
    assert told(get(api(None), Authorization=header)) == NOT_PROVIDED


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Bearer a b",
        "Bearer abc",
        "bearer a.b.c",
        "Bearer trinity_",
        "Bearer trinity_nobody",
        "Bearer \xe9",
        "Bearer trinity_\xe9",
    ],
)
def test_a_bad_token_is_invalid(header, api):
    assert told(get(api(None), Authorization=header)) == INVALID


def test_a_bad_token_is_not_made_good_by_a_session(owner, valkey):
    client = Client()
    client.force_login(owner)
    assert told(get(client, Authorization="Bearer abc")) == INVALID


class TestTokens:
    def test_an_access_token_is_its_user(self, api, owner, agent):
        assert get(api(owner)).json()["results"][0]["name"] == agent.name

    def test_one_query_finds_the_user(self, owner, django_assert_num_queries):
        access = tokens.issue(owner).access
        with django_assert_num_queries(1):
            assert tokens.user_of(access) == owner

    def test_an_expired_one_is_invalid(self, api, owner):
        token = AccessToken(tokens.issue(owner).access)
        token.set_exp(from_time=timezone.now() - timedelta(hours=1))
        assert told(get(api(str(token)))) == INVALID

    def test_it_lasts_a_quarter_of_an_hour(self, owner):
        token = AccessToken(tokens.issue(owner).access)
        assert token["exp"] - token["iat"] == 15 * 60
        refresh = RefreshToken(tokens.issue(owner).refresh)
        assert refresh["exp"] - refresh["iat"] == 24 * 60 * 60

    def test_a_refresh_token_gives_no_access(self, api, owner):
        assert told(get(api(tokens.issue(owner).refresh))) == INVALID

    def test_one_signed_by_another_key_is_invalid(self, api, owner, settings):
        token = AccessToken(tokens.issue(owner).access)
        head, body, signature = str(token).split(".")
        assert told(get(api(f"{head}.{body}.{signature[::-1]}"))) == INVALID

    @pytest.mark.parametrize("change", ["inactive", "password", "deleted"])
    def test_it_dies_with_its_user_or_their_password(self, change, api, stranger):
        client = api(stranger)
        assert get(client).status_code == 200
        if change == "deleted":
            stranger.delete()
        else:
            stranger.is_active = change != "inactive"
            stranger.set_password("another-password") if change == "password" else None
            stranger.save()
        assert told(get(client)) == INVALID


class TestKeys:
    def test_each_scope_works(self, api, owner, superuser, agent, make_key):
        for made in (make_key(owner, "user"), make_key(owner, "agent", agent=agent), make_key(superuser, "system")):
            assert get(api(made.key)).status_code == 200

    def test_a_key_is_random_prefixed_and_not_stored(self, owner, make_key):
        made = make_key(owner, "user")
        assert made.key.startswith(made.row.prefix)
        assert len(made.key) == len("trinity_") + 43
        assert len(made.row.prefix) == 16
        assert made.key not in str(ApiKey.objects.filter(pk=made.row.pk).values().get())

    @pytest.mark.parametrize(
        "change",
        [
            {"revoked_at": timezone.now()},
            {"expires_at": timezone.now() - timedelta(seconds=5)},
            {"digest": keys.digest_of("trinity_other")},
        ],
        ids=["revoked", "expired", "another"],
    )
    def test_a_dead_key_is_invalid(self, change, api, owner, make_key):
        made = make_key(owner, "user")
        ApiKey.objects.filter(pk=made.row.pk).update(**change)
        assert told(get(api(made.key))) == INVALID

    def test_a_key_that_expires_later_works(self, api, owner, make_key):
        assert get(api(make_key(owner, "user", expires_at=timezone.now() + timedelta(hours=1)).key)).status_code == 200

    def test_an_inactive_owners_keys_are_dead(self, api, owner, agent, make_key):
        made = [make_key(owner, "user"), make_key(owner, "agent", agent=agent)]
        owner.is_active = False
        owner.save()
        assert [told(get(api(one.key))) for one in made] == [INVALID, INVALID]

    def test_a_system_key_is_dead_when_its_owner_is_no_superuser_any_more(self, api, superuser, make_key):
        made = [make_key(superuser, "system"), make_key(superuser, "user")]
        superuser.is_superuser = False
        superuser.save()
        assert told(get(api(made[0].key))) == INVALID
        assert get(api(made[1].key)).status_code == 200

    def test_a_deleted_agents_keys_are_dead(self, api, owner, agent, make_key):
        made = make_key(owner, "agent", agent=agent)
        agent.deleted_at = timezone.now()
        agent.save()
        assert told(get(api(made.key))) == INVALID

    def test_its_use_is_noted_once_a_minute(self, api, owner, make_key, django_assert_num_queries):
        made = make_key(owner, "user")
        get(api(made.key))
        first = ApiKey.objects.get(pk=made.row.pk).last_used_at
        assert first is not None
        with django_assert_num_queries(1):
            keys.note_use(made.row)
        get(api(made.key))
        assert ApiKey.objects.get(pk=made.row.pk).last_used_at == first
        ApiKey.objects.filter(pk=made.row.pk).update(last_used_at=first - timedelta(seconds=61))
        get(api(made.key))
        assert ApiKey.objects.get(pk=made.row.pk).last_used_at >= first


class TestSessions:
    def test_a_signed_in_browser_reads(self, owner, agent, valkey):
        client = Client()
        client.force_login(owner)
        assert get(client).json()["results"][0]["name"] == agent.name

    def test_a_browser_writes_with_its_csrf_token_only(self, owner, valkey):
        client = Client(enforce_csrf_checks=True)
        client.force_login(owner)
        body = {"name": "a-9", "runtime": {"kind": "http", "url": "http://a.example"}}
        assert told(client.post("/api/agents/", body, content_type="application/json")) == CSRF
        assert told(client.post("/api/agents/", body, content_type="application/json", headers={"X-CSRFToken": "x" * 32})) == CSRF
        client.cookies["csrftoken"] = "a" * 32
        assert client.post("/api/agents/", body, content_type="application/json", headers={"X-CSRFToken": "a" * 32}).status_code == 201

    def test_a_token_needs_no_csrf(self, owner, valkey):
        client = APIClient(enforce_csrf_checks=True)
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {tokens.issue(owner).access}")
        body = {"name": "a-9", "runtime": {"kind": "http", "url": "http://a.example"}}
        assert client.post("/api/agents/", body, format="json").status_code == 201

    def test_an_inactive_users_session_is_dead(self, owner, valkey):
        client = Client()
        client.force_login(owner)
        owner.is_active = False
        owner.save()
        assert told(get(client)) == NOT_PROVIDED


class TestSourceAgent:
    def test_an_agents_key_may_name_its_agent_and_no_other(self, api, owner, agent, make_key):
        client = api(make_key(owner, "agent", agent=agent).key)
        assert get(client, X_Source_Agent=agent.name).status_code == 200
        for name in ("another", "", agent.name.upper()):
            assert told(get(client, X_Source_Agent=name)) == SOURCE

    def test_nobody_else_may_name_one(self, api, owner, superuser, agent, make_key):
        for credential in (owner, make_key(owner, "user").key, make_key(superuser, "system").key):
            assert told(get(api(credential), X_Source_Agent=agent.name)) == SOURCE
        client = Client()
        client.force_login(owner)
        assert told(get(client, X_Source_Agent=agent.name)) == SOURCE

    def test_without_credentials_it_is_a_401_first(self, api):
        assert told(get(api(None), X_Source_Agent="a")) == NOT_PROVIDED
