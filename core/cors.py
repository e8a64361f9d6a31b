"""Pages of other origins that may read the API: those of `TRINITY_CORS_ORIGINS`, with a token of their own.

A browser never sends our session along: no answer allows credentials, so a page can do there what its own token may, and
nothing in the name of whoever looks at it.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from .api.views import API_PREFIX
from .conf import conf

Respond = Callable[[HttpRequest], HttpResponse]

METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
#: What a page may send beyond what any form may.
SENT = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Prefer"
#: What a page may read beyond the few that any may.
READ = "ETag, Location, Retry-After"
PREFLIGHT_SECONDS = 600


class CorsMiddleware:
    """Tells browsers which pages may read an answer of the API, and what they may send before they send it."""

    def __init__(self, get_response: Respond) -> None:
        self._respond = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer, readable by the page that asked where its origin is one of those."""
        if not request.path_info.startswith(API_PREFIX):
            return self._respond(request)
        origin = request.headers.get("Origin", "")
        allowed = _allowed(origin)
        response = _preflight() if allowed and _asks_first(request) else self._respond(request)
        patch_vary_headers(response, ["Origin"])
        if allowed:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = READ
        return response


def _allowed(origin: str) -> bool:
    origins: tuple[str, ...] = conf.cors_origins
    return origin.lower() in {known.lower().rstrip("/") for known in origins}


def _asks_first(request: HttpRequest) -> bool:
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def _preflight() -> HttpResponse:
    headers = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": SENT,
        "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
    }
    return HttpResponse(status=204, headers=headers)
