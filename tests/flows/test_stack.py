"""The stack itself: a task goes in by HTTP and comes out done."""

from collections.abc import Callable
from typing import Any

from tests.stack import Stack


def test_a_task_runs_in_a_worker_and_its_result_is_read_over_http(stack: Stack, until: Callable[..., Any]) -> None:
    name = stack.make_agent(runtime={"kind": "command", "argv": ["cat"]}, limit=2)
    api = stack.api()
    superuser = stack.api(stack.superuser_key)
    assert api.get(f"/api/agents/{name}/").status_code == 403
    submitted = superuser.post(f"/api/agents/{name}/task", json={"message": "to and fro", "async_mode": True})
    assert submitted.status_code == 202, submitted.text
    execution_id = submitted.json()["execution_id"]

    def finished() -> dict[str, Any] | None:
        rows = stack.sql("SELECT status, response FROM backlog_execution WHERE agent_name = %s", name)
        return rows[0] if rows[0]["status"] not in {"queued", "running"} else None

    assert until(finished) == {"status": "success", "response": "to and fro"}
    assert superuser.get(f"/api/executions/{execution_id}/").json()["status"] == "success"
