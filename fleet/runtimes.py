"""How an agent is reached, as its owner writes it: checked on the way in, without its secrets on the way out."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from drf_spectacular.utils import extend_schema_field
from rest_framework.exceptions import ErrorDetail, ValidationError

from core import api
from core.conf import conf

from .models import Agent, RuntimeKind

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
#: Set by the client that sends the request, and by nobody else.
_OWN_HEADERS = frozenset({"connection", "content-length", "content-type", "host", "te", "trailer", "transfer-encoding", "upgrade"})
_OWN_VARIABLES = "TRINITY_"


class SecretsField(api.ObjectField):
    """`{name: secret text}` with names of the given form."""

    def __init__(self, *, is_name: Callable[[str], bool], is_value: Callable[[str], bool], **kwargs: Any) -> None:
        self.is_name, self.is_value = is_name, is_value
        super().__init__(child=api.CharField(allow_blank=True, max_length=8192), **kwargs)

    def expected(self) -> str:
        return "must be an object of at most 100 texts"

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, dict) and len(data) > 100:  # before each of a hundred thousand is told what is wrong with it
            self.fail("invalid")
        values = super().to_internal_value(data)
        for name, value in values.items():
            if not self.is_name(name):
                self.refuse(f"must not have the name '{name[:60]}'")
            if not self.is_value(value):
                self.refuse(f"has a value for '{name[:60]}' that can't be sent")
        return values


class UrlField(api.CharField):
    """The address of an agent's server: http or https, without credentials, query or fragment."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 2000, **kwargs})

    def expected(self) -> str:
        return "must be an http or https URL without user name, query or fragment"

    def to_internal_value(self, data: Any) -> str:
        url = super().to_internal_value(data)
        host = _host(url)
        if host is None:
            self.fail("invalid")
        if not conf.allow_private_addresses and _is_private(host):
            self.refuse("must not point at a private address")
        return url


def is_header_name(name: str) -> bool:
    """Whether it can be a header of a request to the agent."""
    return bool(_HEADER_NAME.fullmatch(name)) and name.lower() not in _OWN_HEADERS


def is_variable(name: str) -> bool:
    """Whether it can be a variable of a command's environment; those that tell it its task are Trinity's own."""
    return bool(_VARIABLE.fullmatch(name)) and not name.startswith(_OWN_VARIABLES)


class HttpRuntimeIn(api.StrictSerializer):
    """A server with Trinity's agent contract."""

    kind = api.ChoiceField(choices=[RuntimeKind.HTTP])
    url = UrlField()
    headers = SecretsField(is_name=is_header_name, is_value=lambda value: bool(_HEADER_VALUE.fullmatch(value)), required=False)


class CommandRuntimeIn(api.StrictSerializer):
    """A local program, as a list of arguments: no shell reads it."""

    kind = api.ChoiceField(choices=[RuntimeKind.COMMAND])
    argv = api.ListField(child=api.CharField(max_length=32_768, allow_blank=True), min_length=1, max_length=200)
    cwd = api.CharField(max_length=4096, required=False)
    env = SecretsField(is_name=is_variable, is_value=lambda _value: True, required=False)

    def validate_argv(self, argv: list[str]) -> list[str]:
        """The program itself has a name."""
        if not argv[0].strip():
            raise ValidationError("runtime.argv must begin with a program", code="invalid")
        return argv

    def validate_cwd(self, cwd: str) -> str:
        """The same directory whichever one a worker was started in."""
        if not cwd.startswith("/"):
            raise ValidationError("runtime.cwd must be an absolute path", code="invalid")
        return cwd


KINDS: dict[str, type[api.StrictSerializer]] = {RuntimeKind.HTTP: HttpRuntimeIn, RuntimeKind.COMMAND: CommandRuntimeIn}


_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "Write-only: read as null."}
_SECRETS_PATCH = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}}
_PATCH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Merged into what there is: what is left out stays, null removes. Another kind keeps nothing of the former one.",
    "properties": {"kind": {"type": "string"}, "headers": _SECRETS_PATCH, "env": _SECRETS_PATCH},
    "additionalProperties": True,
}
_SCHEMA: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "required": ["kind", "url"],
            "properties": {"kind": {"const": RuntimeKind.HTTP.value}, "url": {"type": "string", "format": "uri"}, "headers": _TEXTS},
        },
        {
            "type": "object",
            "required": ["kind", "argv"],
            "properties": {
                "kind": {"const": RuntimeKind.COMMAND.value},
                "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "cwd": {"type": "string"},
                "env": _TEXTS,
            },
        },
    ]
}


@extend_schema_field(_SCHEMA)
class RuntimeField(api.StrictField):
    """A runtime of any kind: `{"kind", …}` and that kind's own fields."""

    def expected(self) -> str:
        return "must be an object with a kind"

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.fail("invalid")
        kind = data.get("kind")
        if type(kind) is not str or kind not in KINDS:
            raise ValidationError({"kind": [ErrorDetail(f"{self.called()}.kind must be one of {', '.join(KINDS)}", code="invalid")]})
        return self._checked(KINDS[kind](), data)

    def to_representation(self, value: Any) -> Any:
        return value

    def _checked(self, form: api.StrictSerializer, data: dict[str, Any]) -> dict[str, Any]:
        form.bind(field_name=str(self.field_name), parent=self.parent)
        return dict(form.run_validation(data))


@extend_schema_field(_PATCH_SCHEMA)
class RuntimePatchField(api.ObjectField):
    """Changes of a runtime; what they make of it is checked when they are merged."""


#: Objects whose values are secrets, kept one by one.
SECRETS = ("headers", "env")


class _Whole(api.StrictSerializer):
    runtime = RuntimeField()


def merged(agent: Agent, patch: Mapping[str, Any]) -> dict[str, Any]:
    """The agent's runtime with `patch` merged into it, checked as a new one is.

    What is left out stays, secrets among it; null removes. Another `kind` keeps nothing of the former one. Raises REST
    framework's `ValidationError`.
    """
    kind = patch.get("kind", agent.runtime_kind)
    whole: dict[str, Any] = dict(agent.runtime) if kind == agent.runtime_kind else {}
    for name, value in patch.items():
        whole[name] = _merged_secrets(name, whole.get(name) or {}, value) if name in SECRETS and isinstance(value, dict) else value
    given = {name: value for name, value in whole.items() if value is not None and not (name in SECRETS and value == {})}
    return dict(_Whole.check({"runtime": {"kind": kind, **given}})["runtime"])


def _merged_secrets(name: str, old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    if name == "headers":  # whose names are the same in any case
        named = {key.casefold() for key in patch}
        old = {key: value for key, value in old.items() if key.casefold() not in named}
    return {key: value for key, value in {**old, **patch}.items() if value is not None}


def shown(agent: Agent) -> dict[str, Any]:
    """The agent's runtime for its readers: every secret is null, its name stays."""
    hidden: dict[str, Any] = {name: dict.fromkeys(agent.runtime[name]) for name in SECRETS if name in agent.runtime}
    if "api_key" in agent.runtime:
        hidden["api_key"] = None
    return {"kind": agent.runtime_kind, **agent.runtime, **hidden}


def _host(url: str) -> str | None:
    """The host of a usable URL, or None."""
    if not url.isascii() or any(character.isspace() or not character.isprintable() or character in '\\"<>^`{|}' for character in url):
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        return None
    plain = "@" not in parts.netloc and "?" not in url and "#" not in url
    return parts.hostname if usable and plain and parts.hostname else None


def _is_private(host: str) -> bool:
    """Whether the address as written is private; a name is looked at again when it is called."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return False
