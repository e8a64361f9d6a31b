"""The peer: docket with a `ConcurrencyLimit`, doing the same sleeps; `python -m benchmarks.docket_peer` is its worker."""

import asyncio
import os
from pathlib import Path

from docket import ConcurrencyLimit, Docket, Worker

from . import marks

SLOTS = 3
HOLD_POLL_SECONDS = 0.002


_LIMIT = ConcurrencyLimit(max_concurrent=SLOTS)


async def work(verb: str, label: str, what: str, limit: ConcurrencyLimit = _LIMIT) -> None:
    """The same as `worker.SleepRuntime`, on an event loop."""
    began = marks.now()
    if verb == "hold":
        while not _there(what):
            await asyncio.sleep(HOLD_POLL_SECONDS)
    else:
        await asyncio.sleep(float(what))
    marks.write(label, began, marks.now())


def docket() -> Docket:
    """The queue, on the ground's own store."""
    return Docket(name="benchmarks", url=os.environ["REDIS_URL"])


async def add(messages: list[str]) -> None:
    """Queue the messages."""
    async with docket() as queue:
        for message in messages:
            verb, label, what = message.split()
            await queue.add(work)(verb, label, what)


def _there(path: str) -> bool:
    return Path(path).exists()


async def main() -> None:
    """Work until killed."""
    async with docket() as queue:
        queue.register(work)
        async with Worker(queue) as worker:
            print("ready.", flush=True)
            await worker.run_forever()


if __name__ == "__main__":
    asyncio.run(main())
