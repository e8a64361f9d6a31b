"""Whatever is sent to the API, by whomever: an answer that its contract names, and never a fault of ours."""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode

from core.conf import conf
from tests import contract
from tests.architecture import documents
from tests.stack import Stack

EXAMPLES = int(os.environ.get("TEST_EXAMPLES") or (100 if os.environ.get("TEST_LONG") else 4))
SECONDS = 30.0
#: Those that would end what the others are asked about.
ENDING = {"agent_delete"}
#: Changes are made to an agent that no task is sent to.
CHANGING = ("agent_update", "capacity_update", "agent_pause", "agent_resume", "schedule", "share", "key", "public_link")


@pytest.fixture(scope="module")
def whole(_stack: Stack) -> Stack:
    """The processes, whole."""
    _stack.ensure_whole()
    return _stack


@pytest.fixture(scope="module")
def known(whole: Stack) -> dict[str, dict[str, str]]:
    """For the parameters of paths, values that there are: of the agent that works, and of the one that is changed."""
    found = {}
    for sort in ("works", "changes"):
        name = whole.make_agent(runtime={"kind": "command", "argv": ["cat"]}, key=whole.superuser_key)
        assert whole.api(whole.superuser_key).patch(f"/api/agents/{name}/", json={"owner": "olga"}).is_success
        made = whole.api().post(f"/api/agents/{name}/task", json={"message": "hello", "async_mode": True})
        found[sort] = {"name": name, "execution_id": made.json()["execution_id"]}
    return found


@pytest.fixture(scope="module")
def credentials(whole: Stack, known: dict[str, dict[str, str]]) -> dict[str, str]:
    """What each caller sends."""
    key = whole.api().post(f"/api/agents/{known['works']['name']}/keys/", json={"name": "its own"}).json()["key"]
    return {"owner": whole.owner_key, "stranger": whole.keys["stranger"], "agent": key, "superuser": whole.superuser_key}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("who", ["owner", "stranger", "agent"])
def test_every_answer_is_one_that_the_contract_names(
    whole: Stack, known: dict[str, dict[str, str]], credentials: dict[str, str], who: str
) -> None:
    schema = schemathesis.openapi.from_dict(json.loads(documents.contract_document()))
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {credentials[who]}"
        session.trust_env = False
        asked = sum(_ask(found.ok(), known, lambda case: _answer(case, session, whole.url)) for found in schema.get_all_operations())
    assert asked >= len(list(contract.operations())) * EXAMPLES
    assert whole.web.running


def _ask(operation: Any, known: dict[str, dict[str, str]], answer: Callable[[Case], None]) -> int:
    """How many requests were made of this operation."""
    count = 0

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=st.one_of(*_cases(operation, known)))
    def send(case: Case) -> None:
        nonlocal count
        count += 1
        answer(case)

    send()
    return count


def _cases(operation: Any, known: dict[str, dict[str, str]]) -> Iterator[Any]:
    """What fits and what does not, each also of what there is."""
    name = operation.definition.raw["operationId"]
    values = known["changes" if name.startswith(CHANGING) else "works"]
    there = {one["name"]: values[one["name"]] for one in operation.definition.raw.get("parameters", []) if one["name"] in values}
    for mode in GenerationMode:
        yield operation.as_strategy(mode)
        if there and name not in ENDING:
            yield operation.as_strategy(mode, path_parameters=there)


def _answer(case: Case, session: requests.Session, url: str) -> None:
    """Every answer is held against the contract by `tests.contract`; of a fault of ours there is none."""
    answer = case.call(base_url=url, session=session, timeout=SECONDS, headers={"X-Request-Id": uuid.uuid4().hex})
    assert answer.status_code != requests.codes.server_error, answer.text
    assert contract.faults == []


def test_a_body_that_is_too_long_is_refused_by_every_operation(whole: Stack) -> None:
    api = whole.api(whole.superuser_key)
    taking = [(method, contract.filled(path, found)) for method, path, found in contract.operations() if "413" in found["responses"]]
    too_long = b'{"message": "' + b"x" * conf.max_body_bytes + b'"}'
    answers = {
        f"{method} {path}": api.request(method, path, content=too_long, headers={"Content-Type": "application/json"}).status_code
        for method, path in taking
    }
    assert len(taking) > 20
    assert {told: code for told, code in answers.items() if code != requests.codes.request_entity_too_large} == {}
