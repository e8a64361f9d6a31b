"""Whether the settings are fit for more eyes than the developer's, and all of them are heard."""

import difflib
import os
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from django.conf import settings

from ..conf import Conf, conf
from .findings import Finding, fail, ok, warn

#: Variables that are read elsewhere than in `Conf`; a test compares them with `docs/settings.md`.
OTHERS = (
    "TRINITY_DATA_DIR", "TRINITY_DATABASE_POOL", "TRINITY_ENCRYPTION_KEY", "TRINITY_HTTPS",
    "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "SECRET_KEY", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "DEBUG", "LOG_LEVEL",
)  # fmt: skip
LOCAL = ("localhost", "127.0.0.1", "[::1]", "testserver")
SHORTEST_KEY = 50
#: How alike an unknown name must be to one of ours: close enough for a slip, too far for somebody else's variable.
ALIKE, NEARLY_THE_SAME = 0.6, 0.9
PREFIX = "TRINITY_"


def check_configuration() -> Iterator[Finding]:
    """Django's and Trinity's settings as this process has read them."""
    yield _debug()
    yield _secrets(os.environ)
    yield _hosts()
    yield _origins()
    yield _content_security()
    yield _leases()
    yield unknown_variables(os.environ)


def is_public() -> bool:
    """Whether it answers to other names than this machine's own."""
    return any(host not in LOCAL for host in settings.ALLOWED_HOSTS)


def _debug() -> Finding:
    if not settings.DEBUG:
        return ok("debug", "Off")
    return (fail if is_public() else warn)("debug", "DEBUG is on: errors show settings and code", "Unset DEBUG")


def _secrets(env: Mapping[str, str]) -> Finding:
    generated = [name for name in ("SECRET_KEY", "TRINITY_ENCRYPTION_KEY") if not env.get(name)]
    if len(settings.SECRET_KEY) < SHORTEST_KEY:
        return warn("secrets", f"SECRET_KEY has only {len(settings.SECRET_KEY)} characters", _new_key())
    if not generated:
        return ok("secrets", "SECRET_KEY and TRINITY_ENCRYPTION_KEY are set")
    seen = f"{' and '.join(generated)} made in {settings.DATA_DIR}"
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        return ok("secrets", seen)  # one machine, one data directory
    return warn("secrets", f"{seen}: another host would make others", f"Set {' and '.join(generated)} the same for all processes")


def _new_key() -> str:
    return """Set it to what `python -c "import secrets; print(secrets.token_urlsafe(64))"` prints"""


def _hosts() -> Finding:
    seen = ", ".join(settings.ALLOWED_HOSTS) or "none"
    if "*" in settings.ALLOWED_HOSTS:
        return warn("hosts", "ALLOWED_HOSTS is *: any name is answered to", "Set ALLOWED_HOSTS to the names it is reached by")
    if not settings.ALLOWED_HOSTS:
        return fail("hosts", "ALLOWED_HOSTS is empty: every request is refused", "Set ALLOWED_HOSTS to the names it is reached by")
    if is_public() and not settings.SESSION_COOKIE_SECURE:
        return warn("hosts", f"{seen}, and cookies travel over plain HTTP", "Set TRINITY_HTTPS=yes behind a proxy that speaks HTTPS")
    return ok("hosts", seen)


def _origins() -> Finding:
    given: dict[str, tuple[str, ...]] = {"TRINITY_WS_ORIGINS": conf.ws_origins, "TRINITY_CORS_ORIGINS": conf.cors_origins}
    wrong = [f"{name}={origin}" for name, origins in given.items() for origin in origins if not _is_origin(origin)]
    if wrong:
        return fail("origins", f"No origins: {', '.join(wrong)}", "Write each as https://host[:port], without path or wildcard")
    return ok("origins", ", ".join(conf.ws_origins) or "Websockets from the page's own host")


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and "*" not in text and parts.path in {"", "/"}


def _content_security() -> Finding:
    policy = getattr(settings, "SECURE_CSP", None) or getattr(settings, "CONTENT_SECURITY_POLICY", {}).get("DIRECTIVES", {})
    if not any("csp" in name.lower() for name in settings.MIDDLEWARE) or "default-src" not in policy:
        return fail(
            "content security policy", "Pages are sent without one", "Put the CSP middleware and default-src back into the settings"
        )
    unsafe = sorted({source for sources in policy.values() for source in sources if "unsafe" in source or source == "*"})
    if unsafe:
        return warn("content security policy", f"It allows {', '.join(unsafe)}", "Take it out: no page of Trinity needs it")
    return ok("content security policy", "default-src 'none', nothing unsafe")


def _leases() -> Finding:
    seen = f"{conf.lease_seconds} s, renewed every {conf.lease_renew_seconds} s"
    if conf.lease_renew_seconds * 3 <= conf.lease_seconds:
        return ok("leases", seen)
    return warn("leases", f"{seen}: two lost renewals end a run", "Set TRINITY_LEASE_RENEW_SECONDS to a third of TRINITY_LEASE_SECONDS")


def unknown_variables(env: Mapping[str, str]) -> Finding:
    """Names in `env` that look like ours and are read by nobody."""
    known = [*(setting.name for setting in Conf.all().values()), *OTHERS]
    guesses = {name: _meant(name, known) for name in sorted(env) if name not in known}
    unheard = {name: meant for name, meant in guesses.items() if meant or name.startswith(PREFIX)}
    if not unheard:
        return ok("environment", f"{sum(name in env for name in known)} variables set, all known")
    mend = "; ".join(f"did you mean {meant}?" if meant else f"unset {name}" for name, meant in unheard.items())
    return warn("environment", f"Read by nobody: {', '.join(unheard)}", mend)


def _meant(name: str, known: list[str]) -> str | None:
    """The one of ours that it is most alike; of a name with our prefix, the rest is compared."""
    if not name.startswith(PREFIX):
        return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=NEARLY_THE_SAME)), None)
    ours = [one.removeprefix(PREFIX) for one in known if one.startswith(PREFIX)]
    return next((PREFIX + one for one in difflib.get_close_matches(name.removeprefix(PREFIX), ours, n=1, cutoff=ALIKE)), None)
