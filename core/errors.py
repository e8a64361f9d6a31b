"""What can go wrong, as types: one root, a few kinds, and in each app the errors themselves.

An error's docstring is its sentence; `{names}` in it are filled from the keyword arguments. `core.api` alone turns a
kind into a status and a body.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class TrinityError(Exception):
    """The request could not be carried out"""

    code: ClassVar[str] = "internal"
    #: Keyword arguments that also become members of the problem body.
    members: ClassVar[tuple[str, ...]] = ("execution_id",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "code" not in cls.__dict__:
            cls.code = _snake(cls.__name__)

    def __init__(
        self, detail: str | None = None, *, retry_after: int | None = None, headers: Mapping[str, str] | None = None, **data: Any
    ) -> None:
        """`detail` replaces the class's sentence; `retry_after` is in whole seconds; `data` fills the sentence.

        `headers` go out with the answer (`Location`, `Allow`).
        """
        self.data = data
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        self.detail = detail if detail is not None else (type(self).__doc__ or "").strip().format(**data)
        super().__init__(self.detail)

    def problem_members(self) -> dict[str, Any]:
        """The members that this error adds to the problem body."""
        return {name: self.data[name] for name in self.members if self.data.get(name) is not None}


class Invalid(TrinityError):
    """The request is not valid"""


class Unauthenticated(TrinityError):
    """Authentication credentials were not provided."""

    code = "not_authenticated"


class Forbidden(TrinityError):
    """Access denied"""


class NotFound(TrinityError):
    """Not found"""


class Conflict(TrinityError):
    """The request does not fit the present state"""


class Precondition(TrinityError):
    """The settings changed since you read them"""


class TooLarge(TrinityError):
    """The request body is too large"""


class Unprocessable(TrinityError):
    """The request can't be processed"""


class Busy(TrinityError):
    """Too many requests"""


class Failed(TrinityError):
    """The work failed"""


class Unavailable(TrinityError):
    """Service unavailable"""


class TimedOut(TrinityError):
    """The wait ran out"""


class InvalidBody(Invalid):
    """The request body must be a JSON object"""


class InvalidFields(Invalid):
    """The request is not valid"""

    members = ("errors",)

    def __init__(self, errors: list[dict[str, str]]) -> None:
        """`errors`: at least one `{pointer, code, detail}`; the first gives the sentence and the code."""
        super().__init__(errors[0]["detail"], errors=errors)
        self.code = errors[0]["code"]  # type: ignore[misc]  # of this one error, not of the class

    @classmethod
    def of(cls, field: str, detail: str, *, code: str = "invalid") -> "InvalidFields":
        """The error of one field."""
        return cls([{"pointer": f"/{field}", "code": code, "detail": detail}])


class InvalidToken(Unauthenticated):
    """Invalid token."""


class BodyTooLarge(TooLarge):
    """The request body must be at most {limit} bytes"""


class Throttled(Busy):
    """Too many requests. Try again in {seconds} seconds."""

    def __init__(self, seconds: float) -> None:
        """`seconds` until the next request may come; told in whole ones, at least one."""
        whole = max(1, -int(-seconds // 1))
        super().__init__(seconds=whole, retry_after=whole)


class SlotsUnavailable(Unavailable):
    """Slot store unavailable"""
