"""Fields that take a value of their own type or none, each with one sentence for what it takes.

REST framework's own take `"5"` and `5.0` for 5, `1` for true, and trim text. Text here is kept as it was sent.
"""

import json
import re
import uuid
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NoReturn

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.fields import empty
from rest_framework.request import Request

from core.errors import InvalidBody

from .parsers import text_problem

BIGGEST_INTEGER = 2**63 - 1
#: A small body may hold a hundred thousand: telling all of them would take seconds, and an answer many times its length.
MOST_UNKNOWN_TOLD = 20
#: Python's own reading takes more, and other versions of it take other things: weeks, no seconds, an hour 24.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ](?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)


class StrictField(serializers.Field):
    """The base: names itself in its sentences, and treats null as missing where a value is required."""

    def expected(self) -> str:
        """What the value must be, as the end of a sentence."""
        return "is not valid"

    def called(self) -> str:
        """Its name as a caller writes it: `runtime.url`."""
        if self.parent is None:
            return ""
        above = self.parent.called() if isinstance(self.parent, StrictField) else ""
        if not self.field_name:
            return f"every entry of {above}"
        return f"{above}.{self.field_name}" if above else self.field_name

    def fail(self, key: str, **_kwargs: Any) -> NoReturn:
        """Raise the field's one sentence, or that it is required."""
        if key == "required" or (key == "null" and self.required and self.field_name):
            raise ValidationError(f"{self.called()} is required", code="required")
        self.refuse(self.expected())

    def refuse(self, sentence: str) -> NoReturn:
        """Raise its name and `sentence`."""
        raise ValidationError(f"{self.called()} {sentence}".strip(), code="invalid")


class IntegerField(StrictField, serializers.IntegerField):
    """A whole number within its bounds, which may be changed on an instance; `true`, `"5"`, `5.0` are none."""

    def expected(self) -> str:
        low, high = self.min_value, self.max_value
        if low is not None and high is not None:
            return f"must be an integer between {low} and {high}"
        if low is not None:
            return f"must be an integer of at least {low}"
        return "must be an integer" if high is None else f"must be an integer of at most {high}"

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        low = -BIGGEST_INTEGER if self.min_value is None else self.min_value
        high = BIGGEST_INTEGER if self.max_value is None else self.max_value
        if not low <= data <= high:
            self.fail("invalid")
        return data


class BooleanField(StrictField, serializers.BooleanField):
    """`true` or `false`."""

    def expected(self) -> str:
        return "must be true or false"

    def to_internal_value(self, data: Any) -> bool:
        if type(data) is not bool:
            self.fail("invalid")
        return data


class CharField(StrictField, serializers.CharField):
    """Text, kept as sent. Empty text only with `allow_blank`; `blanks=False` also refuses text of nothing but white space."""

    def __init__(self, *, blanks: bool = True, **kwargs: Any) -> None:
        self.blanks = blanks
        super().__init__(**{"trim_whitespace": False, **kwargs})

    def expected(self) -> str:
        low = self.min_length if self.min_length is not None else (0 if self.allow_blank else 1)
        if self.max_length is not None:
            return f"must be text of {low} to {self.max_length} characters"
        return f"must be text of at least {low} characters" if low > 1 else ("must be text" if low == 0 else "must be text, not empty")

    def run_validation(self, data: Any = empty) -> Any:
        # Past REST framework's own check for blank text, which comes before the type is looked at.
        return serializers.Field.run_validation(self, data)

    def to_internal_value(self, data: Any) -> str:
        if type(data) is not str or not self._fits(len(data)):
            self.fail("invalid")
        if not self.blanks and not data.strip():
            self.refuse("must not be blank")
        problem = text_problem(data)
        if problem:
            self.refuse(f"must not contain {problem}")
        return data

    def _fits(self, length: int) -> bool:
        low = self.min_length if self.min_length is not None else (0 if self.allow_blank else 1)
        return low <= length and (self.max_length is None or length <= self.max_length)


class ChoiceField(StrictField, serializers.ChoiceField):
    """One of the listed texts."""

    def expected(self) -> str:
        return f"must be one of {', '.join(map(str, self.choices))}"

    def to_internal_value(self, data: Any) -> Any:
        if type(data) is not str or data not in self.choices:
            self.fail("invalid")
        return data


class UUIDField(StrictField, serializers.UUIDField):
    """A UUID in its usual form with hyphens."""

    def expected(self) -> str:
        return "must be a UUID"

    def to_internal_value(self, data: Any) -> uuid.UUID:
        value = parse_uuid(data)
        if value is None:
            self.fail("invalid")
        return value


class DateTimeField(StrictField, serializers.DateTimeField):
    """A moment as RFC 3339 has it, its offset included."""

    def expected(self) -> str:
        return "must be a time such as 2030-01-31T12:00:00Z"

    def to_internal_value(self, value: Any) -> datetime:
        moment = parse_moment(value)
        if moment is None:
            self.fail("invalid")
        return moment


class ListField(StrictField, serializers.ListField):
    """A list of the child's values."""

    def expected(self) -> str:
        if self.max_length is None:
            return "must be a list"
        return f"must be a list of {self.min_length or 0} to {self.max_length} entries"

    def to_internal_value(self, data: Any) -> list[Any]:
        if type(data) is not list or len(data) < (self.min_length or 0) or (self.max_length is not None and len(data) > self.max_length):
            self.fail("invalid")
        return self.run_child_validation(data)


class ObjectField(StrictField, serializers.DictField):
    """A JSON object of any content, at most `max_bytes` as JSON; with a `child`, its values are the child's."""

    def __init__(self, *, max_bytes: int | None = None, **kwargs: Any) -> None:
        self.max_bytes = max_bytes
        self.typed = "child" in kwargs
        super().__init__(**kwargs)

    def expected(self) -> str:
        return "must be an object" if self.max_bytes is None else f"must be an object of at most {self.max_bytes} bytes"

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if type(data) is not dict or (self.max_bytes is not None and _json_size(data) > self.max_bytes):
            self.fail("invalid")
        return self.run_child_validation(data) if self.typed else data


class StrictSerializer(StrictField, serializers.Serializer):
    """An object with the declared fields and no others."""

    @classmethod
    def read(cls, request: Request, **kwargs: Any) -> dict[str, Any]:
        """The request's body, checked; raises `InvalidBody` or REST framework's `ValidationError`."""
        return cls.check(request.data, **kwargs)

    @classmethod
    def check(cls, data: Any, **kwargs: Any) -> dict[str, Any]:
        """`data`, checked; fields that were left out and have no default are left out."""
        serializer = cls(data=data, **kwargs)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    def expected(self) -> str:
        return "must be an object"

    def run_validation(self, data: Any = empty) -> Any:
        if self.parent is None and not isinstance(data, dict):
            raise InvalidBody
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            self.fail("invalid")
        unknown = self._unknown(data)
        try:
            value = super().to_internal_value(data)
        except ValidationError as error:
            # Behind the known fields' errors: the first one is what the caller is told.
            raise ValidationError({**error.detail, **unknown}) from error  # type: ignore[dict-item]  # it is a dict here
        if unknown:
            raise ValidationError(unknown)
        return value

    def _unknown(self, data: dict[str, Any]) -> dict[str, list[ErrorDetail]]:
        valid = {name: None for name, field in self.fields.items() if not field.read_only}
        listed = f"the valid fields are {', '.join(valid)}" if valid else "no fields are expected here"
        told = islice((name for name in data if name not in valid), MOST_UNKNOWN_TOLD)
        return {name: [ErrorDetail(f"Unknown field '{shortened(name)}'; {listed}", code="unknown_field")] for name in told}


def shortened(name: str) -> str:
    """A caller's own word, short enough to be said back."""
    return name if len(name) <= 60 else f"{name[:60]}…"


def parse_uuid(value: Any) -> uuid.UUID | None:
    """The UUID that `value` spells with hyphens, or None."""
    if type(value) is not str or len(value) != len(str(uuid.NAMESPACE_URL)):
        return None
    try:
        found = uuid.UUID(value)
    except ValueError:
        return None
    return found if str(found) == value.lower() else None


def parse_moment(value: Any) -> datetime | None:
    """The moment, in UTC, that `value` spells as RFC 3339 has it (section 5.6), or None. A leap second can't be kept."""
    if type(value) is not str or not _MOMENT.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _json_size(value: dict[str, Any]) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
