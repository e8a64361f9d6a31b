"""Errors become answers in one place and one shape."""

import json
import uuid

import pytest
from django.db import OperationalError, connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from rest_framework.response import Response

from core import api, errors
from core.conf import conf
from core.embedded_store import free_port
from core.urls import both
from trinity.urls import handler400, handler404, handler500  # noqa: F401 - Django looks for them beside `urlpatterns`


class Echo(api.ApiView):
    authentication_classes = ()
    permission_classes = ()

    def post(self, request):
        return Response(request.data)


class Broken(Echo):
    def get(self, request):
        raise ZeroDivisionError("secret words")


def broken_page(_request: HttpRequest) -> HttpResponse:
    raise ZeroDivisionError("secret words")


def page_without_database(_request: HttpRequest) -> HttpResponse:
    raise OperationalError("no route")


urlpatterns = [
    *both("api/echo", Echo.as_view(), name="echo"),
    path("api/broken", Broken.as_view()),
    path("api/broken-page", broken_page),
    path("api/page-without-database", page_without_database),
]


class NoSeat(errors.Busy):
    """Row {row} is full"""

    members = ("row", "execution_id")


@pytest.fixture
def web():
    return Client(raise_request_exception=False)


#: As RFC 9110 has them: Python's own names changed with its versions.
TITLES = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable",
    409: "Conflict", 412: "Precondition Failed", 413: "Content Too Large", 415: "Unsupported Media Type", 422: "Unprocessable Content",
    429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip


def problem(answer: HttpResponse) -> dict[str, object]:
    assert answer["Content-Type"] == "application/problem+json"
    body = json.loads(answer.content)
    assert body["status"] == answer.status_code
    assert body["type"] == "about:blank"
    assert body["title"] == TITLES[answer.status_code]
    return body


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (errors.Invalid, 400, "invalid"),
        (errors.Unauthenticated, 401, "not_authenticated"),
        (errors.Forbidden, 403, "forbidden"),
        (errors.NotFound, 404, "not_found"),
        (errors.Conflict, 409, "conflict"),
        (errors.Precondition, 412, "precondition"),
        (errors.TooLarge, 413, "too_large"),
        (errors.Unprocessable, 422, "unprocessable"),
        (errors.Busy, 429, "busy"),
        (errors.TrinityError, 500, "internal"),
        (errors.Failed, 502, "failed"),
        (errors.Unavailable, 503, "unavailable"),
        (errors.TimedOut, 504, "timed_out"),
    ],
)
def test_each_kind_has_its_status(kind, status, code):
    answer = api.problem_response(kind("As told."))
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert json.loads(answer.body) == {
        "type": "about:blank",
        "title": TITLES[status],
        "status": status,
        "detail": "As told.",
        "code": code,
    }
    assert (answer.headers.get("WWW-Authenticate") == "Bearer") is (status == 401)
    assert ("Retry-After" in answer.headers) is (status in (429, 503))


def test_an_error_brings_its_own_sentence_code_members_and_headers():
    execution_id = uuid.uuid4()
    answer = api.problem_response(NoSeat(row=7, execution_id=execution_id, retry_after=0, headers={"Location": "/there"}))
    body = json.loads(answer.body)
    assert (body["detail"], body["code"], body["row"], body["execution_id"]) == ("Row 7 is full", "no_seat", 7, str(execution_id))
    assert answer.headers["Location"] == "/there"
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize("kind", [errors.Busy, errors.Unavailable])
def test_whoever_is_sent_away_is_told_when_to_come_back(kind):
    assert {int(api.problem_response(kind()).headers["Retry-After"]) for _ in range(200)} <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("seconds", "told"), [(0, 1), (0.2, 1), (1, 1), (1.01, 2), (59.5, 60)])
def test_a_throttled_caller_is_told_whole_seconds(seconds, told):
    answer = api.problem_response(errors.Throttled(seconds))
    body = json.loads(answer.body)
    assert (body["detail"], body["code"]) == (f"Too many requests. Try again in {told} seconds.", "throttled")
    assert answer.headers["Retry-After"] == str(told)


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
@pytest.mark.parametrize("where", ["/api/", "/api", "/api/nothing", "/api/nothing/here/", "/api/%00", "/api/\N{SNOWMAN}"])
def test_an_unknown_path_is_a_problem(web, method, where):
    body = problem(getattr(web, method)(where))
    assert (body["status"], body["code"]) == (404, "not_found")


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("where", ["/api/broken", "/api/broken-page"])
def test_a_fault_of_ours_tells_nothing_but_is_logged_with_its_traceback(web, where, caplog):
    answer = web.get(where)
    body = problem(answer)
    assert (body["status"], body["code"]) == (500, "internal")
    assert b"secret" not in answer.content
    assert any(record.exc_info or "ZeroDivisionError" in record.getMessage() for record in caplog.records)


@pytest.mark.urls(__name__)
def test_a_database_out_of_reach_is_a_503_outside_rest_framework_too(web):
    answer = web.get("/api/page-without-database")
    body = problem(answer)
    assert (body["status"], body["detail"], body["code"]) == (503, "Service unavailable", "unavailable")
    assert int(answer["Retry-After"]) >= 1


@pytest.mark.django_db
def test_a_database_that_refuses_connections_is_a_503():
    gone = connection.copy(alias="gone")
    gone.settings_dict |= {"NAME": "/nowhere/at/all", "HOST": "127.0.0.1", "PORT": str(free_port())}
    gone.settings_dict["OPTIONS"].pop("pool", None)
    with pytest.raises(OperationalError) as refused:
        gone.ensure_connection()
    answer = api.problem_response(refused.value)
    assert (answer.status, json.loads(answer.body)["code"]) == (503, "unavailable")


def test_a_form_that_cannot_be_read_is_never_an_error_of_ours(db):
    """Django's own pages for what goes wrong look into the form for a CSRF token, and fail like whoever looked before."""
    web = Client(enforce_csrf_checks=True, raise_request_exception=False)
    web.get("/login/")  # for its cookie: without one nobody looks into the form
    form = "application/x-www-form-urlencoded"
    spoilt = {
        "another charset": (f"{form}; charset=utf-16", b"a=1"),
        "too many fields": (form, b"&".join(b"a=1" for _ in range(1001))),
        "too long": (form, b"a=" + b"x" * (conf.max_body_bytes + 1)),
        "too many parts": (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 1001 + b"--x--",
        ),
        "no boundary": ("multipart/form-data", b"x"),
    }
    for where in ("/login/", "/admin/login/", "/nowhere", "/readyz", "/api/nowhere", "/api/token/"):
        got = {name: web.generic("POST", where, body, content_type=kind).status_code for name, (kind, body) in spoilt.items()}
        assert not [name for name, status in got.items() if not 400 <= status < 500], (where, got)


@pytest.mark.urls(__name__)
def test_another_method_is_refused_with_those_that_there_are(web):
    answer = web.put("/api/echo/")
    body = problem(answer)
    assert (body["status"], body["code"]) == (405, "method_not_allowed")
    assert answer["Allow"] == "POST, OPTIONS"
    assert web.options("/api/echo").status_code == 204


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    "kind",
    [
        "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "", "*/*",
        "application/*", "application/json, text/plain",
    ],
)  # fmt: skip
def test_another_media_type_is_refused(web, kind):
    body = problem(web.generic("POST", "/api/echo", b'{"a": 1}', content_type=kind))
    assert (body["status"], body["code"]) == (415, "unsupported_media_type")


@pytest.mark.urls(__name__)
def test_json_is_sent_whatever_is_accepted(web):
    answer = web.post("/api/echo", {}, content_type="application/json", headers={"Accept": "text/html"})
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")


@pytest.mark.urls(__name__)
def test_both_slash_forms_answer_without_a_redirect(web):
    for form in ("/api/echo", "/api/echo/"):
        assert web.post(form, {"a": 1}, content_type="application/json").json() == {"a": 1}


def test_field_errors_become_pointers():
    class Inner(api.StrictSerializer):
        depth = api.IntegerField(min_value=0, max_value=9)

    class Outer(api.StrictSerializer):
        inner = Inner()
        names = api.ListField(child=api.CharField())

    with pytest.raises(Exception) as raised:
        Outer.check({"inner": {"depth": 10, "a/b~c": 1}, "names": ["x", 3]})
    body = json.loads(api.problem_response(raised.value).body)
    assert (body["status"], body["code"], body["detail"]) == (400, "invalid", "inner.depth must be an integer between 0 and 9")
    assert body["errors"] == [
        {"pointer": "/inner/depth", "code": "invalid", "detail": "inner.depth must be an integer between 0 and 9"},
        {"pointer": "/inner/a~1b~0c", "code": "unknown_field", "detail": "Unknown field 'a/b~c'; the valid fields are depth"},
        {"pointer": "/names/1", "code": "invalid", "detail": "every entry of names must be text, not empty"},
    ]
