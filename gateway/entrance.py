"""What a request must show before it is looked at as MCP: where it came from, who sends it, in which form."""

from django.core.handlers.wsgi import WSGIRequest
from rest_framework.request import Request

from core.api.problems import MethodNotAllowed, UnsupportedMediaType
from core.asgi import Scope
from core.conf import conf
from core.environ import environ_of
from core.errors import Unauthenticated
from fleet.authentication import BearerAuthentication
from fleet.principals import Principal

from .errors import OriginForbidden


def let_in(scope: Scope) -> Principal:
    """Who sends it, by one query; raises what REST would, and `OriginForbidden`.

    A browser's session opens nothing here: what a page can send without knowing a token is refused.
    """
    request = Request(WSGIRequest(environ_of(scope, b"")))
    check_origin(request.headers.get("Origin"), host=request.get_host())
    found = BearerAuthentication().authenticate(request)
    if found is None:
        raise Unauthenticated
    if request.method != "POST":
        # No stream and no session is kept for anybody, so there is nothing to GET or DELETE.
        raise MethodNotAllowed(method=request.method, headers={"Allow": "POST"})
    if request.content_type.partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType
    return found[1]


def check_origin(origin: str | None, *, host: str) -> None:
    """Raise `OriginForbidden` for a page of neither `host` itself nor `TRINITY_CORS_ORIGINS`; programs send no origin."""
    others: tuple[str, ...] = conf.cors_origins
    allowed = {known.lower().rstrip("/") for known in (f"http://{host}", f"https://{host}", *others)}
    if origin is not None and origin.lower() not in allowed:
        raise OriginForbidden
