"""The API's documents name all that the contract and the code have, and nothing that they haven't."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from frontend import frames
from frontend.close_codes import CloseCode
from tests.architecture import documents

API = (documents.ROOT / "docs" / "api.md").read_text()
WEBSOCKETS = (documents.ROOT / "docs" / "websockets.md").read_text()
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def contract() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(documents.contract_document())
    return found


def operations(contract: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each operation by its method and path, as the document writes it."""
    return {f"{method.upper()} {path}": item[method] for path, item in contract["paths"].items() for method in METHODS if method in item}


def test_every_endpoint_is_documented_and_no_other(contract: dict[str, Any]) -> None:
    written = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /api/[^` ]*)`", API))
    assert written == set(operations(contract))


def test_everything_that_can_be_sent_is_documented(contract: dict[str, Any]) -> None:
    sent = {name for operation in operations(contract).values() for name in _sent(contract, operation)}
    assert {name for name in sent if not re.search(rf"[`?&\"{{/]{name}\b", API)} == set()


def _sent(contract: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    yield from (parameter["name"] for parameter in operation.get("parameters", ()))
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        yield from contract["components"]["schemas"].get(name, {}).get("properties", {})


def test_what_closes_a_websocket_is_documented() -> None:
    written = {int(code) for code in re.findall(r"^\| (\d{4}) \|", WEBSOCKETS, re.MULTILINE)}
    by_the_server_itself = {1009, 1012}
    assert written == {*CloseCode} | by_the_server_itself


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/ws/capacity/", [frames.HEARTBEAT, frames.snapshot({}), frames.delta({})]),
        ("/ws/executions/{id}/", [frames.HEARTBEAT, frames.END, frames.entries([]), frames.execution({})]),
    ],
)
def test_the_frames_of_each_websocket_are_documented(path: str, sent: list[str]) -> None:
    [section] = [one for one in re.split(r"^# ", WEBSOCKETS, flags=re.MULTILINE) if f"`{path}`" in one.split("\n")[0]]
    written = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", section, re.MULTILINE)}
    for frame in map(json.loads, sent):
        members = written.pop(frame.pop("type"))
        assert all(f"`{member}`" in members for member in frame)
    assert written == {}
