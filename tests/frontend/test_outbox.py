"""One socket's outbox, before a client that takes its time."""

import asyncio
import json
from typing import Any

import pytest

from frontend import frames, outbox
from frontend.outbox import Outbox


class SlowClient:
    """Takes a frame whenever the test lets it."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.frames: list[dict[str, Any]] = []
        self.closed: list[int] = []

    async def send(self, message: dict[str, Any]) -> None:
        await self.ready.wait()
        self.frames.append(json.loads(message["text"]))

    async def close(self, code: int) -> None:
        self.closed.append(code)


def value(version: int) -> dict[str, Any]:
    return {"active": version, "version": version}


def delta(box: Outbox, **values: Any) -> None:
    box.delta(values, frames.delta(values))


def test_slow_client_gets_the_newest_value_of_each_agent_once():
    async def story() -> SlowClient:
        client = SlowClient()
        box = Outbox(send=client.send, close=client.close)
        for version in range(1, 1001):
            delta(box, a=value(version))
        delta(box, b=value(7), a=None)
        client.ready.set()
        assert box.sending is not None
        await box.sending
        return client

    sent = asyncio.run(story()).frames
    assert [frame["agents"] for frame in sent] == [{"a": value(1)}, {"a": None, "b": value(7)}]


def test_snapshot_takes_the_place_of_what_waits_and_newer_changes_go_into_it():
    async def story() -> SlowClient:
        client = SlowClient()
        box = Outbox(send=client.send, close=client.close)
        delta(box, a=value(1))
        delta(box, a=value(2), gone=value(2))
        box.snapshot({"a": value(3), "b": value(3), "c": value(3)}, "unused")
        delta(box, b=value(4), c=None)
        box.heartbeat()
        client.ready.set()
        assert box.sending is not None
        await box.sending
        return client

    sent = asyncio.run(story()).frames
    assert [frame["type"] for frame in sent] == ["delta", "snapshot"]
    assert sent[1]["agents"] == {"a": value(3), "b": value(4)}


def test_client_that_takes_nothing_for_too_long_is_closed_with_4408(monkeypatch):
    monkeypatch.setattr(outbox, "SEND_SECONDS", 0.05)

    async def story() -> SlowClient:
        client = SlowClient()
        box = Outbox(send=client.send, close=client.close)
        delta(box, a=value(1))
        assert box.sending is not None
        await box.sending
        delta(box, a=value(2))
        client.ready.set()
        await asyncio.sleep(0)
        return client

    client = asyncio.run(story())
    assert (client.closed, client.frames) == ([4408], [])


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_client_that_is_gone_ends_the_sending_quietly(error):
    async def story() -> None:
        async def send(_message: dict[str, Any]) -> None:
            raise error

        async def close(_code: int) -> None:
            raise AssertionError

        box = Outbox(send=send, close=close)
        delta(box, a=value(1))
        assert box.sending is not None
        await box.sending

    asyncio.run(story())
