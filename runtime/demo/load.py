"""A light load for the demo: tasks through the REST API, now more, now fewer, so that the meters move.

It is a client like any other: `python -m runtime.demo.load --url http://127.0.0.1:8000`, with its key in the data
directory.
"""

import argparse
import math
import random
import time
from collections.abc import Iterator

import httpx

from core.data_dir import data_dir

#: In the data directory, readable by its owner only.
KEY_FILE = "demo_key"
#: Mean seconds between two tasks for each slot of an agent when it is quiet, and when it is busy: more than it can do, for a while.
QUIET_SECONDS, BUSY_SECONDS = 12.0, 3.2
#: Each agent's slots, and seconds from quiet to busy and back: its own, so that they differ on the screen.
TIDES = {"researcher": (5, 90.0), "writer": (3, 60.0), "reviewer": (2, 75.0)}
ERRANDS = (
    "Compare three ways to store time series and work for {n} seconds",
    "Summarise this week's incidents; take {n} seconds",
    "Draft release notes for the next version, work for {n} seconds",
    "Check the figures in the quarterly report and sleep {n}",
    "Find contradictions between the two contracts; take {n} seconds",
)


def pause_of(agent: str, now: float) -> float:
    """Seconds until the agent's next task: exponential around a mean that rises and falls."""
    slots, seconds = TIDES[agent]
    tide = (1 + math.sin(2 * math.pi * now / seconds)) / 2
    return random.expovariate(slots / (QUIET_SECONDS + (BUSY_SECONDS - QUIET_SECONDS) * tide))


def tasks() -> Iterator[str]:
    """Names of agents, each when its next task is due."""
    due = {agent: time.monotonic() + pause_of(agent, time.monotonic()) for agent in TIDES}
    while True:
        agent = min(due, key=due.__getitem__)
        time.sleep(max(0.0, due[agent] - time.monotonic()))
        yield agent
        due[agent] = time.monotonic() + pause_of(agent, time.monotonic())


def errand() -> str:
    """What to ask for: two to six seconds of work."""
    return random.choice(ERRANDS).format(n=random.randint(2, 6))  # noqa: S311 - not a secret


def submit(client: httpx.Client, agent: str) -> None:
    """Send one task; one that is refused or gets lost is a task less."""
    try:
        answer = client.post(f"/api/agents/{agent}/task", json={"message": errand(), "async_mode": True, "on_full": "queue"})
    except httpx.TransportError as error:
        print(f"{agent}: {error}", flush=True)  # noqa: T201 - its supervisor reads it
        return
    if answer.is_error and answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
        print(f"{agent}: {answer.status_code} {answer.text[:200]}", flush=True)  # noqa: T201 - as above


def main() -> None:
    """Submit until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    key = (data_dir() / KEY_FILE).read_text().strip()
    with httpx.Client(base_url=parser.parse_args().url, headers={"Authorization": f"Bearer {key}"}, timeout=10, trust_env=False) as client:
        for agent in tasks():
            submit(client, agent)


if __name__ == "__main__":
    main()
