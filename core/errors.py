"""What can go wrong, as types: one root, a few kinds, and in each app the errors themselves.

An error's docstring is its sentence; `{names}` in it are filled from the keyword arguments. `core.api` alone turns a
kind into a status and a body.
"""

import re
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

    def __init__(self, detail: str | None = None, *, retry_after: int | None = None, **data: Any) -> None:
        """`detail` replaces the class's sentence; `retry_after` is in whole seconds; `data` fills the sentence."""
        self.data = data
        self.retry_after = retry_after
        self.detail = detail if detail is not None else (type(self).__doc__ or "").strip().format(**data)
        super().__init__(self.detail)

    def problem_members(self) -> dict[str, Any]:
        """The members that this error adds to the problem body."""
        return {name: self.data[name] for name in self.members if self.data.get(name) is not None}


class Invalid(TrinityError):
    """The request is not valid"""


class Unauthenticated(TrinityError):
    """Authentication credentials were not provided."""


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
