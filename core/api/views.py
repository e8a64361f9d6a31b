"""The view all API views are, and the answers for paths that have none."""

import sys
from typing import Any

from django.core import exceptions as django_errors
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from core import errors

from .problems import MethodNotAllowed, problem_response

API_PREFIX = "/api/"


class PlainNegotiation(DefaultContentNegotiation):
    """The view's first renderer whatever `Accept` says: a browser that looks at the API is shown JSON, not a 406."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """The one of just the type that was sent; REST framework's own takes `*/*` for every type."""
        sent = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == sent), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """The first one and its media type."""
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """An API endpoint. `request.principal` and `self.principal` are who asks; a public view has none."""

    content_negotiation_class = PlainNegotiation

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, then put the principal, which authentication gives as `request.auth`, where views look for it."""
        super().initial(request, *args, **kwargs)
        request.principal = request.auth  # type: ignore[attr-defined]  # REST framework's request takes any attribute

    @property
    def principal(self) -> Any:
        """Who asks."""
        return self.request.auth

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """405 with the methods that there are."""
        raise MethodNotAllowed(method=request.method, headers={"Allow": ", ".join(self.allowed_methods)})

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """The methods that there are."""
        return HttpResponse(status=204, headers={"Allow": ", ".join(self.allowed_methods)})


@csrf_exempt
def unknown_path(_request: HttpRequest, *_args: Any, **_kwargs: Any) -> HttpResponse:
    """The last pattern under `/api/`."""
    return problem_response(errors.NotFound()).http()


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's 400, a problem under `/api/`."""
    return _problem(request, exception) or defaults.bad_request(_legible(request), exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's 403, a problem under `/api/`."""
    return _problem(request, exception) or defaults.permission_denied(_legible(request), exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's 404, a problem under `/api/`."""
    return _problem(request, exception) or defaults.page_not_found(_legible(request), exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Django's 500, a problem under `/api/`: there a store that can't be reached is a 503."""
    return _problem(request, sys.exc_info()[1] or errors.TrinityError()) or defaults.server_error(_legible(request))


def _legible(request: HttpRequest) -> HttpRequest:
    """The request; its form is empty if it can't be read: Django's pages look into it, and would fail like whoever did before."""
    try:
        request.POST  # noqa: B018 - it is parsed when it is looked at
    except (django_errors.BadRequest, django_errors.SuspiciousOperation, MultiPartParserError, OSError):
        request.POST = QueryDict()
    return request


def _problem(request: HttpRequest, error: BaseException) -> HttpResponse | None:
    if not request.path_info.startswith(API_PREFIX):
        return None
    return problem_response(error).http()  # type: ignore[arg-type]  # Django hands on nothing but exceptions
