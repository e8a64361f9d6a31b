"""Versions of settings as `ETag`, and the version that an `If-Match` asks for (RFC 9110, 13.1.1)."""

from django.utils.http import parse_etags
from rest_framework.request import Request

#: No version of any settings: what an `If-Match` stands for that doesn't name the present one.
_NO_VERSION = -1


def version_tag(version: int) -> str:
    """The `ETag` of this version."""
    return f'"{version}"'


def expected_version(request: Request, *, current: int) -> int | None:
    """The version that a change must still find: `current` where `If-Match` names it; None where any will do.

    Anything else (other tags, weak ones, which never match here, no tags at all) is no version: the change must be refused.
    `current` is what the caller has just looked at. Whoever writes compares again, under the row's lock.
    """
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    return current if version_tag(current) in parse_etags(header) else _NO_VERSION
