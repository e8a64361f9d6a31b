"""Submitting over HTTP: what is accepted, what waits, what is refused."""

from backlog.models import Execution


def test_task_that_finds_a_slot_is_accepted(api, owner, agent):
    answer = api(owner).post(f"/api/agents/{agent.name}/task", {"message": "m", "async_mode": True}, format="json")
    assert answer.status_code == 202, answer.content
    row = Execution.objects.get()
    assert answer.json() == {"status": "accepted", "execution_id": str(row.pk), "agent_name": agent.name, "async_mode": True}
    assert answer["Location"] == f"/api/executions/{row.pk}/"
    got = api(owner).get(answer["Location"])
    assert got.status_code == 200
    print(got.json())
    assert api(owner).get("/api/executions/").json()["results"][0]["id"] == str(row.pk)
