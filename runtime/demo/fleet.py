"""The demo's agents, and the key of its load."""

import sys
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from core.data_dir import data_dir
from fleet import keys, services
from fleet.models import Agent, KeyScope, RuntimeKind
from fleet.principals import Principal
from fleet.selectors import living_agents

from .load import KEY_FILE

_REVIEWER = "An HTTP agent with two slots."
_PROGRAM = Path(__file__).with_name("agent.py")


def ensure_agents(*, owner: User, server_url: str) -> None:
    """Make those of the demo's agents that are missing; the HTTP one is pointed at the server of this start."""
    _ensure(owner, "researcher", _command(), description="A local command that counts words, slowly.", limit=5)
    _ensure(owner, "writer", _command(), description="The same command with three slots.", limit=3)
    reviewer = _ensure(owner, "reviewer", {"kind": "http", "url": server_url}, description=_REVIEWER, limit=2)
    if reviewer.owner_id == owner.pk and reviewer.description == _REVIEWER and reviewer.runtime_kind == RuntimeKind.HTTP:
        # Only the demo's own: somebody's agent of that name keeps its address.
        Agent.objects.filter(pk=reviewer.pk).update(runtime={"url": server_url})


def _command() -> dict[str, Any]:
    return {"kind": "command", "argv": [sys.executable, "-I", str(_PROGRAM)]}


def _ensure(owner: User, name: str, runtime: dict[str, Any], *, description: str, limit: int) -> Agent:
    return living_agents().filter(name=name).first() or services.create_agent(
        principal=Principal.of_user(owner), name=name, runtime=runtime, description=description, settings={"max_parallel_tasks": limit}
    )


def ensure_key(*, owner: User) -> None:
    """A user key in the data directory's file, for the load to use; a new one where that one works no longer."""
    file = data_dir() / KEY_FILE
    if file.exists() and keys.usable_key(file.read_text().strip()):
        return
    file.touch(mode=0o600)
    file.write_text(services.create_key(owner=owner, scope=KeyScope.USER, name="demo load").key)
