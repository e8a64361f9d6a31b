"""Versions of settings as `ETag`, and the version that an `If-Match` names."""

from rest_framework.request import Request

#: No version of any settings: what an `If-Match` stands for that is none of our tags.
_NO_VERSION = -1


def version_tag(version: int) -> str:
    """The `ETag` of this version."""
    return f'"{version}"'


def expected_version(request: Request) -> int | None:
    """The version that `If-Match` names; None where any will do."""
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    tag = header.strip().strip('"')
    return int(tag) if tag.isascii() and tag.isdigit() and len(tag) < 19 else _NO_VERSION
