"""The data directory: the SQLite file, the embedded store's files, generated keys and logs.

`TRINITY_DATA_DIR` names it (default `./var`); every command reads and writes there and nowhere else.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured


def data_dir() -> Path:
    """The directory, made (mode 0700) where it isn't there yet."""
    path = Path(os.environ.get("TRINITY_DATA_DIR") or "var").expanduser().absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def kept_secret(name: str, make: Callable[[], str]) -> str:
    """The secret in file `name`; made by `make` at the first call, whichever process is first (mode 0600)."""
    path = data_dir() / name
    if not path.exists():
        draft = path.with_name(f".{name}.{os.getpid()}.{secrets.token_hex(4)}")
        draft.touch(mode=0o600)
        draft.write_text(make())
        try:
            os.link(draft, path)  # fails where another process was first: its secret is the one that counts
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()


def secret_key() -> str:
    """Django's SECRET_KEY of this data directory."""
    return kept_secret("secret_key", lambda: secrets.token_urlsafe(64))


def encryption_key() -> str:
    """The Fernet key for secrets at rest of this data directory."""
    return kept_secret("encryption_key", lambda: Fernet.generate_key().decode())


def checked_encryption_key(text: str) -> str:
    """`text`, if it is a Fernet key; else `ImproperlyConfigured`, at the start and not at the first secret."""
    try:
        Fernet(text)
    except ValueError as error:
        raise ImproperlyConfigured("TRINITY_ENCRYPTION_KEY is not a Fernet key: 32 bytes in URL-safe base64") from error
    return text


def redis_url_file() -> Path:
    """Where `up` writes the embedded store's address, for every other command to find."""
    return data_dir() / "redis_url"
