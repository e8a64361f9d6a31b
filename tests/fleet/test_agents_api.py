"""The endpoints of agents: who sees which, and what a new one may be."""

from typing import Any

import pytest

from fleet.models import Agent, Share
from fleet.services import create_key

HTTP = {"kind": "http", "url": "http://127.0.0.1:9000/agent"}


def test_new_agent_is_created_read_back_and_listed(api, owner):
    client = api(owner)
    answer = client.post("/api/agents/", {"name": "a-1", "runtime": HTTP, "description": " as sent ", "max_backlog_depth": 0}, format="json")
    assert answer.status_code == 201
    assert answer["Location"] == "/api/agents/a-1/"
    body = answer.json()
    assert body.pop("created_at").endswith("Z")
    assert body == {
        "name": "a-1",
        "description": " as sent ",
        "owner": "olga",
        "runtime": HTTP,
        "paused": False,
        "max_parallel_tasks": 3,
        "max_backlog_depth": 0,
        "execution_timeout_seconds": 900,
    }
    assert client.get("/api/agents/a-1").json() | {"created_at": ""} == body | {"created_at": ""}
    assert [row["name"] for row in client.get("/api/agents/").json()["results"]] == ["a-1"]
