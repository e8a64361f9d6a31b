"""Secrets at rest: JSON kept as a Fernet token."""

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet
from django.conf import settings
from django.db import models


@cache
def _cipher(key: str) -> Fernet:
    return Fernet(key.encode())


if TYPE_CHECKING:
    _Base = models.TextField[Any, Any]
else:
    _Base = models.TextField


class EncryptedJSONField(_Base):
    """A JSON value, encrypted with `settings.ENCRYPTION_KEY` on its way to the database."""

    def from_db_value(self, value: str | None, _expression: Any, _connection: Any) -> Any:
        """The value decrypted; `InvalidToken` where the key is another one."""
        return None if value is None else json.loads(_cipher(settings.ENCRYPTION_KEY).decrypt(value.encode()))

    def get_prep_value(self, value: Any) -> str | None:
        """The value encrypted."""
        return None if value is None else _cipher(settings.ENCRYPTION_KEY).encrypt(json.dumps(value).encode()).decode()

    def to_python(self, value: Any) -> Any:
        """Values are JSON already."""
        return value
