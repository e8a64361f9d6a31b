"""Trinity's own settings: name, type, default and meaning of each, read at use.

`conf.lease_seconds` reads `settings.TRINITY_LEASE_SECONDS`. `trinity.settings` fills them from the environment by
`environment(env)`. `docs/settings.md` lists them; a test holds that list complete.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from .networks import networks

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Setting(Generic[T]):
    """One setting. As a class attribute of `Conf` it reads its value from Django's settings at each use."""

    name: str
    default: T
    meaning: str
    minimum: float | None = None
    #: What a text must look like, and what such a text is called.
    shape: tuple[str, str] | None = None
    #: What raises `ValueError` for a value that is none, and what a right one is called.
    check: tuple[Callable[[Any], object], str] | None = None

    @overload
    def __get__(self, instance: None, owner: type) -> "Setting[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> "Setting[T] | T":
        return self if instance is None else getattr(settings, self.name, self.default)

    def parse(self, text: str) -> T:
        """The value that `text` (from the environment) stands for; `ImproperlyConfigured` if it isn't one."""
        try:
            value: Any = self._converted(text)
        except ValueError as error:
            raise ImproperlyConfigured(f"{self.name}: {text!r} is not {_KINDS[type(self.default)]}") from error
        if self.minimum is not None and value is not None and value < self.minimum:
            raise ImproperlyConfigured(f"{self.name} must be at least {self.minimum}, not {text}")
        if self.shape is not None and not re.fullmatch(self.shape[0], text):
            raise ImproperlyConfigured(f"{self.name}: {text!r} is not {self.shape[1]}")
        if self.check is not None:
            self._check(value, *self.check, text=text)
        return value

    def _check(self, value: T, check: Callable[[Any], object], called: str, *, text: str) -> None:
        try:
            check(value)
        except ValueError as error:
            raise ImproperlyConfigured(f"{self.name}: {text!r} is not {called}: {error}") from error

    def _converted(self, text: str) -> Any:
        if isinstance(self.default, bool):
            if text.lower() not in _BOOLEANS:
                raise ValueError(text)
            return _BOOLEANS[text.lower()]
        if isinstance(self.default, int):
            return int(text)
        if isinstance(self.default, float):
            return float(text)
        if isinstance(self.default, tuple):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return text


_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS = {bool: "yes or no", int: "a whole number", float: "a number", tuple: "a comma-separated list", str: "text"}


class Conf:
    """All of Trinity's settings."""

    lease_seconds = Setting("TRINITY_LEASE_SECONDS", 60, "How long a started run's right to its slot lasts without a renewal.", 3)
    lease_renew_seconds = Setting("TRINITY_LEASE_RENEW_SECONDS", 15, "How often a worker renews its leases.", 1)
    sweep_seconds = Setting("TRINITY_SWEEP_SECONDS", 2.0, "How often agents with waiting rows are drained.", 0.1)
    reconcile_seconds = Setting("TRINITY_RECONCILE_SECONDS", 10.0, "How often rows and slots are compared.", 0.1)
    orphan_seconds = Setting("TRINITY_ORPHAN_SECONDS", 20.0, "How long a slot and its row may disagree before repair.", 1)
    redispatch_seconds = Setting(
        "TRINITY_REDISPATCH_SECONDS", 60.0, "After how long a granted row that has not started is dispatched again; doubles.", 1
    )
    expiry_seconds = Setting("TRINITY_EXPIRY_SECONDS", 86_400, "How long an execution may wait before it fails as expired.", 1)
    grace_seconds = Setting("TRINITY_GRACE_SECONDS", 30, "How long a stopping worker lets its runs finish.", 0)
    broker_silence_seconds = Setting(
        "TRINITY_BROKER_SILENCE_SECONDS", 120.0, "How long a worker that hears nothing from its broker stays in service.", 5
    )
    worker_threads = Setting("TRINITY_WORKER_THREADS", 32, "Runs that one worker process carries at once.", 1)
    web_threads = Setting("TRINITY_WEB_THREADS", 16, "Threads that answer HTTP requests in one web process.", 1)
    max_body_bytes = Setting("TRINITY_MAX_BODY_BYTES", 2 * 1024 * 1024, "Largest request body.", 1024)
    max_output_bytes = Setting("TRINITY_MAX_OUTPUT_BYTES", 10 * 1024 * 1024, "Largest answer or output of one run.", 1024)
    retention_days = Setting("TRINITY_RETENTION_DAYS", 90, "After how many days finished executions are deleted; 0: never.", 0)
    idempotency_seconds = Setting("TRINITY_IDEMPOTENCY_SECONDS", 86_400, "How long an Idempotency-Key is remembered.", 1)
    ws_origins = Setting(
        "TRINITY_WS_ORIGINS", (), "Origins whose pages may open a websocket with a browser session; empty: the page's own host."
    )
    cors_origins = Setting("TRINITY_CORS_ORIGINS", (), "Other origins that may read the API from a browser.")
    max_parallel_tasks_ceiling = Setting("TRINITY_MAX_PARALLEL_TASKS_CEILING", 10, "First value of the fleet-wide ceiling (1..32).", 1)
    max_concurrent_tasks = Setting("TRINITY_MAX_CONCURRENT_TASKS", 0, "First value of the fleet cap; 0: none.", 0)
    login_rate = Setting(
        "TRINITY_LOGIN_RATE",
        "10/min",
        "Logins and token requests per address and user name.",
        shape=(r"[1-9][0-9]*/(s|sec|second|m|min|minute|h|hour|d|day)", "a rate such as 10/min"),
    )
    public_rate = Setting(
        "TRINITY_PUBLIC_RATE",
        "30/min",
        "Messages by public links, per client address.",
        shape=(r"[1-9][0-9]*/(s|sec|second|m|min|minute|h|hour|d|day)", "a rate such as 30/min"),
    )
    trusted_proxies = Setting(
        "TRINITY_TRUSTED_PROXIES",
        (),
        "Addresses and networks of proxies whose X-Forwarded-For is believed; empty: none.",
        check=(networks, "a list of addresses and networks"),
    )
    agent_work_dir = Setting("TRINITY_AGENT_WORK_DIR", "", "Where command agents without a `cwd` work; empty: in the data directory.")
    allow_private_addresses = Setting(
        "TRINITY_ALLOW_PRIVATE_ADDRESSES", True, "Whether an HTTP agent's URL may point at a private address."
    )
    redis_timeout_seconds = Setting("TRINITY_REDIS_TIMEOUT_SECONDS", 2.0, "Longest wait for an answer of the slot store.", 0.1)
    database_timeout_seconds = Setting("TRINITY_DATABASE_TIMEOUT_SECONDS", 20.0, "Longest wait for an answer of the database.", 1)

    @classmethod
    def all(cls) -> dict[str, Setting[Any]]:
        """Every setting by its attribute name."""
        return {name: value for name, value in vars(cls).items() if isinstance(value, Setting)}


conf = Conf()


def environment(env: Mapping[str, str]) -> dict[str, Any]:
    """`{TRINITY_…: value}` for those of the settings that `env` sets; a wrong value raises `ImproperlyConfigured`."""
    return {s.name: s.parse(env[s.name]) for s in Conf.all().values() if env.get(s.name, "") != ""}
