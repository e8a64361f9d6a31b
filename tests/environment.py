"""What the project's settings read in a test process: a fresh data directory, a store of its own, nothing of the user's.

Imported by `conftest.py` before Django's settings are; with xdist once in every worker.
"""

import atexit
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from core.embedded_store import EmbeddedStore, StoreServerMissing, free_port, installed_program, packaged_program

#: Variables of the user's that must not reach the tests.
FOREIGN = ("REDIS_URL", "DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "DEBUG", "LOG_LEVEL")


def clean() -> None:
    """Drop from the environment whatever would configure Trinity."""
    for name in [name for name in os.environ if name.startswith("TRINITY_") or name in FOREIGN]:
        del os.environ[name]


def own_store(directory: Path) -> EmbeddedStore:
    """A store not yet started: `TEST_STORE_PROGRAM`, else the packaged server, so that each machine tests the same."""
    program = os.environ.get("TEST_STORE_PROGRAM") or packaged_program() or installed_program()
    if program is None:
        raise StoreServerMissing
    return EmbeddedStore(program=program, directory=directory, port=free_port(), password=secrets.token_urlsafe(16))


def temporary_directory() -> Path:
    """A directory that goes when this process ends."""
    path = Path(tempfile.mkdtemp(prefix="trinity-test-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def numbered(url: str) -> str:
    """`TEST_REDIS_URL` with a database number of this xdist worker's own: workers flush theirs between tests."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    base, _, number = url.rpartition("/") if url.count("/") > 2 else (url, "", "0")
    return f"{base}/{int(number or 0) + int(worker)}"


clean()
DATA_DIR = temporary_directory()
#: None where `TEST_REDIS_URL` names a server to use instead.
STORE = None if os.environ.get("TEST_REDIS_URL") else own_store(DATA_DIR / "valkey")

os.environ["TRINITY_DATA_DIR"] = str(DATA_DIR)
os.environ["REDIS_URL"] = STORE.url if STORE else numbered(os.environ["TEST_REDIS_URL"])
if os.environ.get("TEST_DATABASE_URL"):
    os.environ["DATABASE_URL"] = os.environ["TEST_DATABASE_URL"]
os.environ["DJANGO_SETTINGS_MODULE"] = "trinity.settings"
