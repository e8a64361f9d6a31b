"""A broker on a server of its own that goes away and comes back: requests are accepted all the same, and nothing is lost."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.agents.server import AgentServer
from tests.flows.submitting import all_ended, execution, holders, submit
from tests.stack import Stack
from tests.stores import OwnStore

Until = Callable[..., Any]
NOT_PUBLISHED = "execution.not_published"
NOT_ASKED = "broker.not_asked"


@pytest.fixture
def broker(tmp_path: Any) -> Iterator[OwnStore]:
    """A server for the messages alone."""
    server = OwnStore(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def stack(broker: OwnStore, tmp_path: Any) -> Iterator[Stack]:
    """A stack of this test's own whose messages go through `broker`."""
    stack = Stack(tmp_path / "stack", CELERY_BROKER_URL=broker.url)
    yield stack
    stack.close()


def test_what_could_not_be_published_stays_granted_and_starts_when_the_broker_is_back(
    stack: Stack, broker: OwnStore, agent_server: AgentServer, until: Until
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=4)
    api = stack.api()
    running = submit(api, agent, "hang")["execution_id"]
    until(lambda: agent_server.active == 1)

    broker.kill()
    began = time.monotonic()
    answers = [submit(api, agent, f"late {number}") for number in range(2)]
    assert time.monotonic() - began < 20  # a publish never hangs a request
    assert [one["status"] for one in answers] == ["accepted"] * 2
    late = [one["execution_id"] for one in answers]
    until(lambda: NOT_PUBLISHED in stack.web.log.read_text())
    assert holders(stack, agent) == 3
    # Granted and nothing more, for as long as the broker is away; the run that goes on is none of its business.
    until(lambda: NOT_ASKED in stack.workers[0].log.read_text(), 30)  # the sweep would have published them
    shown = [execution(api, one) for one in late]
    assert [(one["status"], one["started_at"]) for one in shown] == [("running", None)] * 2
    assert (execution(api, running)["status"], agent_server.active) == ("running", 1)

    broker.start()
    until(lambda: all_ended(api, late), 60)
    agent_server.let_go()
    until(lambda: all_ended(api, [running]), 30)
    assert [execution(api, one)["status"] for one in [running, *late]] == ["success"] * 3
    assert Counter(agent_server.started) == dict.fromkeys([running, *late], 1)
    until(lambda: holders(stack, agent) == 0)
