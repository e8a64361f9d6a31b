"""JSON web tokens: minutes of access, a day of refresh, and nothing in them that outlives a change of the password."""

from dataclasses import dataclass
from typing import TypeVar

from django.contrib.auth.models import User
from django.utils.crypto import constant_time_compare
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.tokens import AccessToken, RefreshToken, Token

from core.errors import InvalidToken

_FINGERPRINT = "fingerprint"

T = TypeVar("T", AccessToken, RefreshToken)


@dataclass(frozen=True)
class TokenPair:
    """What a login by the API gives."""

    access: str
    refresh: str


def issue(user: User) -> TokenPair:
    """A pair for a user whose password was just checked."""
    refresh = RefreshToken.for_user(user)
    refresh[_FINGERPRINT] = _fingerprint(user)
    return TokenPair(access=str(refresh.access_token), refresh=str(refresh))


def user_of(access: str) -> User:
    """The active user an access token was issued to; raises `InvalidToken`."""
    return _user_of(_verified(AccessToken, access))


def refresh_access(refresh: str) -> str:
    """A new access token for a refresh token whose user is still active; raises `InvalidToken`."""
    token = _verified(RefreshToken, refresh)
    _user_of(token)
    return str(token.access_token)


def _verified(kind: type[T], text: str) -> T:
    try:
        return kind(text)  # type: ignore[arg-type]  # the stub wants a token, the code takes its text
    except TokenError as error:
        raise InvalidToken from error


def _user_of(token: Token) -> User:
    user = User.objects.filter(pk=token.get("user_id"), is_active=True).first()
    if user is None or not constant_time_compare(str(token.get(_FINGERPRINT)), _fingerprint(user)):
        raise InvalidToken
    return user


def _fingerprint(user: User) -> str:
    """Changes with the password and with the server's secret key; tells neither."""
    return user.get_session_auth_hash()[:32]
