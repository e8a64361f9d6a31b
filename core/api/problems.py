"""Errors to answers: the one place where a kind becomes a status and a body (RFC 9457)."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from django.core import exceptions as django_errors
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse, UnreadablePostError
from django_redis.exceptions import ConnectionInterrupted
from redis.exceptions import RedisError
from rest_framework import exceptions as drf
from rest_framework.settings import api_settings

from core import errors
from core.conf import conf

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"


class MethodNotAllowed(errors.TrinityError):
    """This path does not answer {method}"""


class UnsupportedMediaType(errors.TrinityError):
    """The request body must be sent as application/json"""


STATUS: dict[type[errors.TrinityError], int] = {
    errors.Invalid: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    MethodNotAllowed: 405,
    errors.Conflict: 409,
    errors.Precondition: 412,
    errors.TooLarge: 413,
    UnsupportedMediaType: 415,
    errors.Unprocessable: 422,
    errors.Busy: 429,
    errors.TrinityError: 500,
    errors.Failed: 502,
    errors.Unavailable: 503,
    errors.TimedOut: 504,
}
#: What may be told to come back later, and always is told when.
_RETRIED = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
#: As RFC 9110 has them, whichever Python is asked.
_RENAMED = {413: "Content Too Large", 422: "Unprocessable Content"}
_STORE_ERRORS = (RedisError, ConnectionInterrupted)
_DATABASE_ERRORS = (OperationalError, InterfaceError)


@dataclass(frozen=True)
class ProblemAnswer:
    """A rendered problem: what any server, not only Django's, can send as it is."""

    status: int
    headers: dict[str, str]
    body: bytes

    def http(self) -> HttpResponse:
        """The same for Django."""
        response = HttpResponse(self.body, status=self.status, headers=self.headers)
        # What is to be logged was, where the error was translated; Django would log each failed run as an error of ours.
        response._has_been_logged = True  # type: ignore[attr-defined]
        return response


def status_of(error: errors.TrinityError) -> int:
    """The status of the nearest kind that `error` is of."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem_response(error: Exception) -> ProblemAnswer:
    """The answer for any exception; one that nobody expected is logged with its traceback and tells nothing."""
    known = translated(error)
    status = status_of(known)
    return ProblemAnswer(status, _headers(known, status), _body(known, status))


def problem_for(error: Exception, _context: dict[str, Any]) -> HttpResponse:
    """REST framework's exception handler."""
    return problem_response(error).http()


def title_of(status: int) -> str:
    """What a status is called, in its problems and in the contract."""
    return _RENAMED.get(status) or HTTPStatus(status).phrase


def _headers(error: errors.TrinityError, status: int) -> dict[str, str]:
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", **error.headers}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status in _RETRIED:
        # Spread, so that callers refused together don't come back together.
        headers["Retry-After"] = str(max(1, error.retry_after if error.retry_after is not None else 1 + secrets.randbelow(5)))
    return headers


def _body(error: errors.TrinityError, status: int) -> bytes:
    problem = {
        "type": "about:blank",
        "title": title_of(status),
        "status": status,
        "detail": error.detail,
        "code": error.code,
        **error.problem_members(),
    }
    return json.dumps(problem, default=str).encode()


def translated(error: Exception) -> errors.TrinityError:
    """`error` in our own words."""
    if isinstance(error, errors.TrinityError):
        if status_of(error) == HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("request.failed", exc_info=error)
        return error
    if isinstance(error, drf.APIException):
        return _of_rest_framework(error)
    if isinstance(error, _STORE_ERRORS):
        log.warning("store.unreachable", error=str(error))
        return errors.SlotsUnavailable()
    if isinstance(error, _DATABASE_ERRORS):
        log.warning("database.unreachable", exc_info=error)
        return errors.Unavailable()
    return _of_django(error)


def _of_django(error: Exception) -> errors.TrinityError:
    if isinstance(error, Http404):
        return errors.NotFound()
    if isinstance(error, django_errors.PermissionDenied):
        return errors.Forbidden()
    if isinstance(error, django_errors.RequestDataTooBig):
        return errors.BodyTooLarge(limit=conf.max_body_bytes)
    if isinstance(error, (django_errors.SuspiciousOperation, django_errors.BadRequest, UnreadablePostError)):
        return errors.Invalid()
    log.error("request.failed", exc_info=error)
    return errors.TrinityError()


def _of_rest_framework(error: drf.APIException) -> errors.TrinityError:
    if isinstance(error, drf.ValidationError):
        return errors.InvalidFields(list(field_errors(error.detail)))
    if isinstance(error, drf.MethodNotAllowed):
        return MethodNotAllowed(str(error.detail))
    if isinstance(error, drf.Throttled):
        return errors.Throttled(getattr(error, "wait", None) or 1)
    for foreign, ours in _REST_FRAMEWORK.items():
        if isinstance(error, foreign):
            return ours()
    log.error("request.failed", exc_info=error)
    return errors.TrinityError()


_REST_FRAMEWORK: dict[type[drf.APIException], type[errors.TrinityError]] = {
    drf.ParseError: errors.InvalidBody,
    drf.NotAuthenticated: errors.Unauthenticated,
    drf.AuthenticationFailed: errors.InvalidToken,
    drf.PermissionDenied: errors.Forbidden,
    drf.NotFound: errors.NotFound,
    drf.UnsupportedMediaType: UnsupportedMediaType,
}


def field_errors(detail: Any, pointer: str = "") -> Iterator[dict[str, str]]:
    """Each error in REST framework's nested `detail` as `{pointer, code, detail}`, in the order they were found."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            own = key == api_settings.NON_FIELD_ERRORS_KEY
            yield from field_errors(inner, pointer if own else f"{pointer}/{_escaped(str(key))}")
    elif isinstance(detail, (list, tuple)):
        for inner in detail:
            yield from field_errors(inner, pointer)
    else:
        yield {"pointer": pointer, "code": getattr(detail, "code", None) or "invalid", "detail": str(detail)}


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
