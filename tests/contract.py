"""Holds every answer that any test gets from the API against its contract, which is `docs/openapi.json` too.

All clients of the tests are listened to: Django's, and httpx's to web processes of their own. An answer with a status that its
operation doesn't name, or with a body that isn't of the shape named, fails the test that got it. With `TEST_ANSWERS=DIRECTORY`
each process writes down there which (operation, status) it saw; `python -m tests.contract DIRECTORY` tells what the contract
names and no test has reached.
"""

import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import httpx
import jsonschema_rs
import requests
from django.test import Client

from tests.architecture import documents

METHODS = ("get", "post", "put", "patch", "delete")
#: What no test can provoke in every operation: a fault of ours. `core/test_problems.py` shows it in a view made to fail.
NOT_TO_PROVOKE = frozenset({"500"})

seen: set[tuple[str, str]] = set()
faults: list[str] = []


@cache
def contract() -> dict[str, Any]:
    """The document; answers of its shapes may have no members that it doesn't name, but for problems."""
    document: dict[str, Any] = json.loads(documents.contract_document())
    for name, shape in document["components"]["schemas"].items():
        if name != "ProblemOut" and "properties" in shape:
            shape.setdefault("additionalProperties", False)
    return document


@cache
def _paths() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Each path, with or without its last slash, the more literal one first."""
    found = sorted(contract()["paths"].items(), key=lambda item: item[0].count("{"))
    return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path.rstrip("/"))) + "/?"), item) for path, item in found]


def operation(method: str, path: str) -> dict[str, Any] | None:
    """The operation that answers; None for what is not the contract's."""
    for pattern, item in _paths():
        if pattern.fullmatch(path):
            found: dict[str, Any] | None = item.get(method.lower())
            return found
    return None


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """`(method, path, operation)` of all."""
    for path, item in contract()["paths"].items():
        for method in METHODS:
            if method in item:
                yield method, path, item[method]


def needs_credentials(found: dict[str, Any]) -> bool:
    """Whether an operation is for those alone who prove who they are."""
    return bool(found.get("security"))


def filled(path: str, found: dict[str, Any], **known: str) -> str:
    """The path with a value for each of its parameters: those `known`, and for others one that nothing has."""
    values = {one["name"]: _unknown(one["schema"]) for one in found.get("parameters", []) if one["in"] == "path"}
    return path.format(**(values | known))


def _unknown(shape: dict[str, Any]) -> str:
    if shape.get("format") == "uuid":
        return str(uuid.uuid4())
    return "999999" if shape.get("type") == "integer" else "unknown"


@cache
def _validator(operation_id: str, status: str, media_type: str) -> Any:
    for _, _, found in operations():
        if found["operationId"] == operation_id:
            shape = found["responses"][status]["content"][media_type]["schema"]
            return jsonschema_rs.validator_for({**shape, "components": contract()["components"]}, validate_formats=True)
    raise LookupError(operation_id)


def hear(method: str, path: str, status: int, media_type: str, body: bytes | None) -> None:
    """Look at one answer; `body` None: it isn't here to be looked at."""
    if not path.startswith("/api/") or (found := operation(method, path)) is None:
        return
    name, code = found["operationId"], str(status)
    seen.add((name, code))
    if (fault := _fault(found, code, media_type.partition(";")[0], body)) is not None:
        faults.append(f"{method} {path} ({name}) answered {code}: {fault}")


def _fault(found: dict[str, Any], code: str, media_type: str, body: bytes | None) -> str | None:
    if code not in found["responses"]:
        return f"its contract names {', '.join(found['responses'])}; {(body or b'')[:300]!r}"
    content = found["responses"][code].get("content", {})
    if not content or body is None:
        return f"a body that is not named: {body[:300]!r}" if body and not content else None
    if media_type not in content:
        return f"{media_type}, not {', '.join(content)}"
    if not media_type.endswith("json"):
        return None
    try:
        _validator(found["operationId"], code, media_type).validate(json.loads(body))
    except jsonschema_rs.ValidationError as error:
        return f"{error.message} at /{'/'.join(map(str, error.instance_path))}: {body[:500]!r}"
    return None


# -- The clients -------------------------------------------------------------------------------------------------------
def listen() -> None:
    """From now on hear every answer."""
    Client.request = _heard_django(Client.request)  # type: ignore[method-assign]
    httpx.Client.send = _heard_httpx(httpx.Client.send)  # type: ignore[method-assign]
    requests.Session.send = _heard_requests(requests.Session.send)  # type: ignore[method-assign]


def _heard_django(request: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(request)
    def heard(client: Client, **environ: Any) -> Any:
        answer = request(client, **environ)
        body = None if answer.streaming else answer.content
        hear(answer.request["REQUEST_METHOD"], answer.request["PATH_INFO"], answer.status_code, answer.get("Content-Type", ""), body)
        return answer

    return heard


def _heard_httpx(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def heard(client: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
        answer: httpx.Response = send(client, request, **more)
        body = None if more.get("stream") else answer.content
        hear(request.method, request.url.path, answer.status_code, answer.headers.get("content-type", ""), body)
        return answer

    return heard


def _heard_requests(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def heard(session: requests.Session, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        answer: requests.Response = send(session, request, **more)
        path = urlsplit(request.url or "").path
        hear(str(request.method), str(path), answer.status_code, answer.headers.get("content-type", ""), answer.content)
        return answer

    return heard


# -- What was reached --------------------------------------------------------------------------------------------------
def write_down() -> None:
    """Add what this process saw to the directory that `TEST_ANSWERS` names."""
    if (directory := os.environ.get("TEST_ANSWERS")) and seen:
        Path(directory).mkdir(parents=True, exist_ok=True)
        (Path(directory) / f"{os.getpid()}.json").write_text(json.dumps(sorted(seen)))


def unreached(directory: Path) -> list[str]:
    """`operation: status` of what the contract names and nobody saw."""
    reached = {tuple(pair) for file in directory.glob("*.json") for pair in json.loads(file.read_text())}
    named = [(found["operationId"], code) for _, _, found in operations() for code in found["responses"]]
    return [f"{name}: {code}" for name, code in named if (name, code) not in reached and code not in NOT_TO_PROVOKE]


def main() -> int:
    """Say what was not reached; 1 if anything."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")
    django.setup()
    left = unreached(Path(sys.argv[1]))
    named = sum(len(found["responses"]) for _, _, found in operations())
    sys.stdout.write("".join(f"no test reaches {line}\n" for line in left) or f"all of {named} documented answers were reached\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
