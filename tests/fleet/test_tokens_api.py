"""Logging in by the API, and how often one may try."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework_simplejwt.tokens import RefreshToken

from core.embedded_store import free_port
from fleet import throttles, tokens

WRONG = (401, "invalid_credentials", "User name or password is wrong.")


@pytest.fixture
def log_in(api):
    def post(username="olga", password="olga-password", **headers):
        return api(None).post("/api/token/", {"username": username, "password": password}, format="json", **headers)

    return post


def told(answer):
    assert answer["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


def test_a_password_gives_a_pair_that_works(log_in, owner, api):
    answer = log_in()
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    assert set(answer.json()) == {"access", "refresh"}
    assert api(answer.json()["access"]).get("/api/agents/").status_code == 200
    renewed = api(None).post("/api/token/refresh", {"refresh": answer.json()["refresh"]}, format="json")
    assert set(renewed.json()) == {"access"}
    assert api(renewed.json()["access"]).get("/api/agents/").status_code == 200


def test_a_stale_credential_does_not_stand_in_the_way_of_a_new_one(owner, api):
    answer = api("stale").post("/api/token/", {"username": "olga", "password": "olga-password"}, format="json")
    assert answer.status_code == 200


@pytest.mark.parametrize("change", [{"password": "wrong"}, {"username": "nobody"}, {"password": "olga-password "}, {"username": "OLGA"}])
def test_wrong_is_wrong_whatever_is_wrong(change, log_in, owner):
    answer = log_in(**change)
    assert told(answer) == WRONG
    assert answer["WWW-Authenticate"] == "Bearer"


def test_an_inactive_user_gets_none(log_in, owner):
    User.objects.update(is_active=False)
    assert told(log_in()) == WRONG


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "username is required"),
        ({"username": "olga"}, "password is required"),
        ({"username": 5, "password": "x"}, "username must be text of 1 to 150 characters"),
        ({"username": "olga", "password": None}, "password is required"),
        ({"username": "olga", "password": "x", "otp": 1}, "Unknown field 'otp'; the valid fields are username, password"),
        ([], "The request body must be a JSON object"),
    ],
)
def test_another_body_is_refused(body, sentence, api):
    answer = api(None).post("/api/token/", body, format="json")
    assert told(answer)[::2] == (400, sentence)


@pytest.mark.parametrize("kind", ["nonsense", "access", "expired", "inactive", "password"])
def test_a_refresh_token_that_is_none_is_invalid(kind, api, owner):
    pair = tokens.issue(owner)
    expired = RefreshToken(pair.refresh)
    expired.set_exp(from_time=timezone.now() - timedelta(days=2))
    if kind == "inactive":
        User.objects.update(is_active=False)
    if kind == "password":
        owner.set_password("another")
        owner.save()
    sent = {"nonsense": "a.b.c", "access": pair.access, "expired": str(expired)}.get(kind, pair.refresh)
    answer = api(None).post("/api/token/refresh/", {"refresh": sent}, format="json")
    assert told(answer) == (401, "invalid_token", "Invalid token.")


class TestThrottle:
    def test_the_eleventh_try_in_a_minute_is_refused_right_or_wrong(self, log_in, owner):
        assert [log_in(password="wrong").status_code for _ in range(9)] == [401] * 9
        assert log_in().status_code == 200
        answer = log_in()
        seconds = int(answer["Retry-After"])
        assert told(answer) == (429, "throttled", f"Too many requests. Try again in {seconds} seconds.")
        assert 1 <= seconds <= 60

    def test_other_names_and_other_addresses_have_tries_of_their_own(self, log_in, owner, settings):
        settings.TRINITY_LOGIN_RATE = "1/min"
        assert log_in().status_code == 200
        assert log_in(username="Olga").status_code == 429
        assert log_in(username="sten").status_code == 401
        assert log_in(REMOTE_ADDR="10.1.1.1").status_code == 200

    def test_it_is_over_after_its_time(self, log_in, owner, settings, valkey):
        settings.TRINITY_LOGIN_RATE = "1/min"
        log_in()
        assert log_in().status_code == 429
        (key,) = [key for key in valkey.scan_iter() if b"login" in key]
        assert 0 < valkey.ttl(key) <= 60
        valkey.delete(key)
        assert log_in().status_code == 200

    def test_names_of_any_kind_are_counted(self, log_in):
        for name in ("\N{SNOWMAN}", "a b", "x" * 150, "\r\n"):
            assert told(log_in(username=name)) == WRONG

    def test_without_its_store_nobody_logs_in(self, log_in, owner, settings):
        settings.CACHES = {"default": settings.CACHES["default"] | {"LOCATION": f"redis://127.0.0.1:{free_port()}/0"}}
        answer = log_in()
        assert told(answer) == (503, "slots_unavailable", "Slot store unavailable")
        assert int(answer["Retry-After"]) >= 1

    @pytest.mark.parametrize(("text", "expected"), [("10/min", (10, 60)), ("3/hour", (3, 3600)), ("1/s", (1, 1)), ("5/day", (5, 86_400))])
    def test_rates(self, text, expected):
        assert throttles.rate(text) == expected
