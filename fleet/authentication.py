"""How callers prove who they are: a bearer token (JSON web token or API key), or the browser's session with its CSRF token.

Both give `(user, Principal)`: REST framework's `request.auth` is the principal.
"""

from django.contrib.auth.models import User
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from core.errors import InvalidToken

from . import keys, tokens
from .errors import CsrfFailed, SourceAgentForbidden
from .principals import Principal

SOURCE_HEADER = "X-Source-Agent"


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer <token>`."""

    def authenticate(self, request: Request) -> tuple[User, Principal] | None:
        """The caller; None without a bearer token; raises `InvalidToken` for a bad one."""
        token = bearer_token(request.headers.get("Authorization", ""))
        return None if token is None else _proved(request, principal_of_token(token))

    def authenticate_header(self, _request: Request) -> str:
        """What a 401 asks for."""
        return "Bearer"


class BrowserAuthentication(SessionAuthentication):
    """A signed-in browser; anything sent needs the CSRF token."""

    def authenticate(self, request: Request) -> tuple[User, Principal] | None:
        """The caller, or None; raises `CsrfFailed`."""
        found = super().authenticate(request)
        return None if found is None else _proved(request, Principal.of_user(found[0]))

    def enforce_csrf(self, request: Request) -> None:
        """Django's check in our words."""
        try:
            super().enforce_csrf(request)
        except PermissionDenied as error:
            raise CsrfFailed from error


def bearer_token(header: str) -> str | None:
    """The token of an `Authorization` header, None where it is of another scheme; raises `InvalidToken` for a misshapen one."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "bearer":
        return None
    token = rest.strip()
    if not token or len(token.split()) != 1:
        raise InvalidToken
    return token


def principal_of_token(token: str) -> Principal:
    """Who holds `token`, by one query; raises `InvalidToken`."""
    if not token.startswith(keys.MARK):
        return Principal.of_user(tokens.user_of(token))
    key = keys.usable_key(token)
    if key is None:
        raise InvalidToken
    keys.note_use(key)
    return Principal.of_key(key)


def check_source(principal: Principal, named: str | None) -> None:
    """Raise `SourceAgentForbidden` where `X-Source-Agent` names another agent than the one whose key it is."""
    if named is not None and (principal.agent_id is None or named != principal.agent_name):
        raise SourceAgentForbidden


def _proved(request: Request, principal: Principal) -> tuple[User, Principal]:
    check_source(principal, request.headers.get(SOURCE_HEADER))
    return principal.user, principal
