"""The examples of the API's documents do what they say, followed from the first to the last."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.server import AgentServer
from tests.flows.reading import Reader, steps_of
from tests.flows.submitting import submit
from tests.stack import ROOT, Stack

MAKE_OWNER = 'from django.contrib.auth.models import User; User.objects.create_superuser("owner", password="owner-password")'


@pytest.fixture
def owner(stack: Stack) -> Iterator[dict[str, str]]:
    """Whoever has just started a Trinity: name and password of its first superuser. What they made is put away."""
    if not stack.sql("SELECT id FROM auth_user WHERE username = %s", "owner"):
        stack._command("shell", "--no-imports", "-c", MAKE_OWNER)
    yield {"LOGIN": "owner", "PASSWORD": "owner-password"}
    api = stack.api(stack.superuser_key)
    for name in ("sleeper", "summaries", "echo"):
        api.delete(f"/api/agents/{name}/")
    # Where an example failed half-way.
    assert api.post("/api/fleet/resume/").status_code == 200
    assert api.put("/api/settings/max-concurrent-tasks", json={"value": None, "on_full": "queue"}).status_code == 200


def test_the_examples_of_the_api_run_and_answer_as_shown(stack: Stack, owner: dict[str, str], tmp_path: Path) -> None:
    steps = list(steps_of(ROOT / "docs" / "api.md"))
    assert len(steps) > 50
    with Reader(tmp_path, URL=stack.url, **owner) as reader:
        for step in steps:
            reader.follow(step)


@pytest.mark.usefixtures("owner")
def test_the_examples_of_the_readme_run_and_answer_as_shown(stack: Stack, tmp_path: Path) -> None:
    steps = [step for step in steps_of(ROOT / "README.md") if "curl" in step.code]
    assert steps
    with Reader(tmp_path, URL=stack.url, KEY=stack.superuser_key) as reader:
        for step in steps:
            reader.follow(step)


def test_the_examples_of_the_websockets_tell_of_a_free_slot_and_of_a_run(stack: Stack, agent_server: AgentServer, tmp_path: Path) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    submit(stack.api(), agent, "sleep=1")
    steps = list(steps_of(ROOT / "docs" / "websockets.md"))
    assert len(steps) == 2
    with Reader(tmp_path, URL=stack.url, TOKEN=stack.owner_key, AGENT=agent) as reader:
        for step in steps:
            reader.follow(step)
