"""Whatever a body holds, what is wrong with it is the caller's 400 or 413."""

import json

import pytest
from django.test import Client
from django.urls import path
from rest_framework.response import Response

from core import api, errors
from core.api.parsers import MAX_DEPTH, parse_json

NOT_AN_OBJECT = "The request body must be a JSON object"


class Anything(api.StrictSerializer):
    text = api.CharField(required=False, allow_blank=True)
    data = api.ObjectField(required=False, max_bytes=8192)


class Take(api.ApiView):
    authentication_classes = ()
    permission_classes = ()

    def post(self, request):
        return Response(Anything.read(request))


urlpatterns = [path("api/take", Take.as_view())]
pytestmark = pytest.mark.urls(__name__)


def send(body: bytes, **headers: str):
    return Client(raise_request_exception=False).generic("POST", "/api/take", body, content_type="application/json", **headers)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"not json",
        b"[]",
        b"null",
        b'"text"',
        b"5",
        b"true",
        b'{"data": {"x": NaN}}',
        b'{"data": {"x": -Infinity}}',
        b'{"data": {"x": 1e999}}',
        b'{"data": {"x": ' + b"9" * 5000 + b"}}",
        b'{"text": "\xff\xfe"}',
        b'\xef\xbb\xbf{"text": ""}',
        b'{"text": "a\x00b"}',
        b'{"text": "raw \n newline"}',
        b'{"text": ""} {}',
        b"{'text': ''}",
        b"[" * 100_000,
        b'{"data":' * 50_000,
        '{"text": "x"}'.encode("utf-16"),
    ],
    ids=lambda body: repr(body[:24]),
)
def test_what_is_not_a_json_object_is_refused(body):
    answer = send(body)
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (400, "invalid_body", NOT_AN_OBJECT)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (rb'{"text": "a\u0000b"}', "NUL characters"),
        (rb'{"data": {"a": [{"b\u0000": 1}]}}', "NUL characters"),
        (rb'{"\u0000": 1}', "NUL characters"),
        (rb'{"text": "\ud800"}', "lone surrogates"),
        (rb'{"data": {"a": ["\udfff"]}}', "lone surrogates"),
    ],
)
def test_text_that_no_database_stores_is_refused(body, problem):
    answer = send(body)
    assert (answer.status_code, answer.json()["detail"]) == (400, f"Text must not contain {problem}")


def test_a_surrogate_pair_is_a_character():
    assert send(rb'{"text": "\ud83d\ude00"}').json() == {"text": "\N{GRINNING FACE}"}


def test_nesting_has_a_limit_of_ours_below_that_of_python():
    def nested(levels: int) -> bytes:
        return b'{"data":' * (levels - 1) + b"{}" + b"}" * (levels - 1)

    assert parse_json(nested(MAX_DEPTH))
    with pytest.raises(errors.InvalidBody, match="nested"):
        parse_json(nested(MAX_DEPTH + 1))


def test_a_body_over_the_limit_is_refused_and_one_at_it_is_not(settings):
    settings.TRINITY_MAX_BODY_BYTES = 1024
    body = json.dumps({"text": "x" * (1024 - len('{"text": ""}'))}).encode()
    assert len(body) == 1024
    assert send(body).status_code == 200
    answer = send(body + b" ")
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_five_megabytes_are_a_413():
    assert send(b'{"text": "' + b"x" * 5_000_000 + b'"}').status_code == 413


def test_text_is_kept_as_it_was_sent():
    text = "  \t e\N{COMBINING ACUTE ACCENT} \r\n\u2028 "
    assert send(json.dumps({"text": text}).encode()).json() == {"text": text}


@pytest.mark.parametrize("length", [b"", b"-1", b"x"])
def test_a_misshapen_content_length_is_no_fault_of_ours(length):
    answer = send(b'{"text": ""}', CONTENT_LENGTH=length.decode())
    assert answer.status_code < 500


def test_no_body_is_an_empty_object():
    assert send(b"").json() == {}
