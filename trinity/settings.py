"""Django's settings, from the environment; `docs/settings.md` explains each variable."""

import logging
import os
from datetime import timedelta
from pathlib import Path

import django
import environ
from django.core.exceptions import ImproperlyConfigured

from core import data_dir
from core.conf import environment
from core.retries import once as retry_once

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

DATA_DIR = data_dir.data_dir()
DEBUG = env.bool("DEBUG", default=False)
#: The demo (`up --demo`) may use a generated key; a deployment names its own.
SECRET_KEY = env.str("SECRET_KEY", default="") or data_dir.secret_key()
ENCRYPTION_KEY = data_dir.checked_encryption_key(env.str("TRINITY_ENCRYPTION_KEY", default="") or data_dir.encryption_key())
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

globals().update(environment(os.environ))

INSTALLED_APPS = [
    "core",
    "fleet",
    "backlog",
    "capacity",
    "runtime",
    "frontend",
    "frontend.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "django_structlog",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "core.cors.CorsMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
APPEND_SLASH = False
ROOT_URLCONF = "trinity.urls"
WSGI_APPLICATION = None
ASGI_APPLICATION = "trinity.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# -- Stores ----------------------------------------------------------------------------------------------------------
DATABASES = {"default": env.db_url("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'db.sqlite3'}")}
_database = DATABASES["default"]
_database_timeout = globals().get("TRINITY_DATABASE_TIMEOUT_SECONDS", 20.0)
if _database["ENGINE"].endswith("sqlite3"):
    _database |= {
        "ENGINE": "core.sqlite3",
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # IMMEDIATE: a transaction takes its write lock at BEGIN; upgraded later it would fail, not wait.
            "transaction_mode": "IMMEDIATE",
            "timeout": _database_timeout,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        },
        # Threads share a file, they can't share a database in memory.
        "TEST": {"NAME": env.str("TEST_SQLITE_FILE", default=str(DATA_DIR / "test.sqlite3"))},
    }
elif "postgresql" in _database["ENGINE"]:
    _database["ENGINE"] = "core.postgresql"
    _database["OPTIONS"] = {
        # Reconnecting backs off for as long as it is let: a minute's outage would last two.
        "pool": {"min_size": 1, "max_size": env.int("TRINITY_DATABASE_POOL", default=16), "timeout": 5, "reconnect_timeout": 2},
        "connect_timeout": 5,
        # A server that is cut off is noticed by the kernel, whether we wait for it or it for us.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
        # A process that was frozen amid a transaction must not hold its locks for as long as it sleeps.
        "options": f"-c idle_in_transaction_session_timeout={round(_database_timeout * 1000)}",
    } | _database.get("OPTIONS", {})
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"

_url_file = data_dir.redis_url_file()
REDIS_URL = env.str("REDIS_URL", default="") or (_url_file.read_text().strip() if _url_file.exists() else "redis://127.0.0.1:6379/0")
_timeout = globals().get("TRINITY_REDIS_TIMEOUT_SECONDS", 2.0)
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "trinity",
        "OPTIONS": {
            "CONNECTION_POOL_CLASS_KWARGS": {
                "max_connections": 512,
                "socket_timeout": _timeout,
                "socket_connect_timeout": min(1.0, _timeout),
                "retry": retry_once(),
            },
        },
    }
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL, "max_connections": 1024, "socket_connect_timeout": 1, "socket_keepalive": True}]},
    }
}

# -- Celery: early ack, no results, threads, a publish that can neither hang nor retry for long -----------------------
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="") or REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_TIMEOUT = 1
#: Without an end: a worker out of touch leaves by its own rule, when its last run has ended (runtime/hearing.py).
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_DEFAULT_QUEUE = "trinity"
CELERY_BROKER_TRANSPORT_OPTIONS = (
    {"socket_timeout": 1, "socket_connect_timeout": 1, "socket_keepalive": True, "global_keyprefix": "celery:"}
    if CELERY_BROKER_URL.startswith(("redis", "unix", "valkey"))
    else {"write_timeout": 2}
)
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.2}

# -- HTTP ------------------------------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.bool("TRINITY_HTTPS", default=False)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = globals().get("TRINITY_MAX_BODY_BYTES", 2 * 1024 * 1024)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["fleet.authentication.BearerAuthentication", "fleet.authentication.BrowserAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["core.api.StrictJSONParser"],
    "EXCEPTION_HANDLER": "core.api.problem_for",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "COERCE_DECIMAL_TO_STRING": False,
}
SIMPLE_JWT = {
    "ACCESS_TOKEN_LIFETIME": timedelta(minutes=15),
    "REFRESH_TOKEN_LIFETIME": timedelta(days=1),
    "UPDATE_LAST_LOGIN": False,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Trinity",
    "DESCRIPTION": "The capacity control plane for a fleet of AI agents.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    # Fields of these names have other choices elsewhere.
    "ENUM_NAME_OVERRIDES": {
        "ExecutionStatus": "backlog.models.Status",
        "ExecutionTrigger": "backlog.models.Trigger",
        "TaskStatus": ["accepted", "queued"],
        "KeyScope": "fleet.models.KeyScope",
        "PersonalScope": "fleet.grants.serializers.PERSONAL_SCOPES",
    },
    "PREPROCESSING_HOOKS": ["core.api.schema.one_path_each"],
}

STATIC_URL = "/static/"
#: Made here: without it whitenoise warns at each start of a fresh checkout.
STATIC_ROOT = DATA_DIR / "static"
STATIC_ROOT.mkdir(exist_ok=True)
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

if django.VERSION >= (6, 0):
    MIDDLEWARE.insert(1, "django.middleware.csp.ContentSecurityPolicyMiddleware")
else:
    INSTALLED_APPS.append("csp")
    MIDDLEWARE.insert(1, "csp.middleware.CSPMiddleware")
_csp = {
    "default-src": ["'none'"],
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "img-src": ["'self'", "data:"],
    "font-src": ["'self'"],
    "connect-src": ["'self'"],
    "form-action": ["'self'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'none'"],
}
CONTENT_SECURITY_POLICY = {"DIRECTIVES": _csp}
SECURE_CSP = _csp

_level = env.str("LOG_LEVEL", default="INFO").upper()
if _level not in logging.getLevelNamesMapping():
    raise ImproperlyConfigured(f"LOG_LEVEL: {_level!r} is not one of DEBUG, INFO, WARNING, ERROR, CRITICAL")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "core.logs.formatter"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": _level},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "mcp": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        # A line per message: what happens to executions is logged by their own names.
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
    },
}
SILENCED_SYSTEM_CHECKS: list[str] = []
