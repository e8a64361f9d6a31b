"""One word for how an agent is doing."""

import pytest

from capacity.health import health_of
from capacity.selectors import Meter
from fleet.models import FleetSettings
from tests.runtime.histories import begin


def meter(*, max: int = 3, active: int | None = 0, queued: int = 0, paused: bool = False) -> Meter:
    """An agent's load."""
    return Meter(max=max, active=active, queued=queued, paused=paused, version=1)


@pytest.mark.parametrize(
    ("load", "word"),
    [
        (meter(paused=True, active=5, queued=2), "paused"),
        (meter(paused=True, active=None), "paused"),
        (meter(active=None, queued=2), "unknown"),
        (meter(active=4), "over_limit"),
        (meter(active=3, queued=9), "at_capacity"),
        (meter(active=3), "at_capacity"),
        (meter(active=2, queued=1), "backlogged"),
        (meter(active=2), "active"),
        (meter(), "idle"),
    ],
)
def test_the_first_word_that_applies_is_told(load, word):
    assert health_of(load) == word


def test_agents_show_their_health_and_tool_servers_in_lists_and_alone(api, owner, post_task, make_agent):
    idle, full, paused = make_agent(), make_agent(limit=1), make_agent(paused=True)
    begin(post_task(to=full), seconds_ago=1)
    listed = {agent["name"]: agent for agent in api(owner).get("/api/agents/").json()["results"]}
    assert {name: agent["health"] for name, agent in listed.items()} == {idle.name: "idle", full.name: "at_capacity", paused.name: "paused"}
    alone = api(owner).get(f"/api/agents/{full.name}/").json()
    assert (alone["health"], alone["tool_servers"]) == ("at_capacity", [])
    assert alone == listed[full.name]
    changed = api(owner).patch(f"/api/agents/{full.name}/", {"max_parallel_tasks": 2}, format="json").json()
    assert changed["health"] == "active"
    FleetSettings.objects.update(paused=True)
    assert api(owner).get(f"/api/agents/{idle.name}/").json()["health"] == "paused"


def test_without_the_slot_store_agents_are_still_read_and_their_health_is_unknown(api, owner, make_agent, store_out_of_reach):
    names = [make_agent().name, make_agent(paused=True).name]
    store_out_of_reach(True)
    listed = api(owner).get("/api/agents/").json()["results"]
    assert [(agent["name"], agent["health"]) for agent in listed] == [(names[0], "unknown"), (names[1], "paused")]
