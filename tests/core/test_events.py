"""Events: their names, their wire form, and that nothing depends on Redis or a listener."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pytest
import redis

from core import events
from core.embedded_store import free_port
from core.events import CHANNEL, Event, publish, wire
from core.subscriber import Subscriber
from tests.stores import OwnStore

ID = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057")


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class SlotBoardPainted(Event):
    """A test's event."""

    board_id: uuid.UUID
    at: datetime
    colour: Colour = Colour.RED
    names: tuple[str, ...] = ()


PAINTED = SlotBoardPainted(board_id=ID, at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), names=("ä",))
ON_THE_WIRE = {"type": "slot_board.painted", "board_id": str(ID), "at": "2026-01-02T03:04:05Z", "colour": "red", "names": ["ä"]}


def test_event_is_named_by_its_class_and_carries_plain_values():
    assert wire(PAINTED) == ON_THE_WIRE
    assert json.loads(json.dumps(wire(PAINTED))) == ON_THE_WIRE


def test_published_event_reaches_who_listens(valkey):
    with valkey.pubsub() as pubsub:
        pubsub.subscribe(CHANNEL)
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        publish(PAINTED)
        assert json.loads(pubsub.get_message(timeout=5)["data"]) == ON_THE_WIRE


def test_event_that_nobody_can_hear_is_logged_and_breaks_nothing(monkeypatch, caplog):
    dead = redis.Redis(port=free_port(), retry=None)
    monkeypatch.setattr(events, "client", lambda: dead)
    publish(PAINTED)
    said = [record.msg for record in caplog.records if record.msg["event"] == "events.not_published"]
    assert [one["event_type"] for one in said] == ["slot_board.painted"]


class Listening:
    """A subscriber of this test, and what it heard."""

    def __init__(self, url: str) -> None:
        self.heard: list[bytes] = []
        self.returns = 0
        self.subscriber = Subscriber(url=url, handlers={"one": self.heard.append, "two": self.heard.append}, on_return=self._return)

    def _return(self) -> None:
        self.returns += 1


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Listening]:
    listener = Listening(url)
    task = asyncio.create_task(listener.subscriber.run())
    try:
        await eventually(lambda: listener.subscriber.listening)
        yield listener
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(predicate) -> None:
    async with asyncio.timeout(10):
        while not predicate():
            await asyncio.sleep(0.01)


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[OwnStore]:
    store = OwnStore(tmp_path)
    yield store
    store.kill()


def test_subscriber_hears_all_its_channels_and_no_other(store_server):
    async def story() -> None:
        async with listening(store_server) as listener:
            with redis.Redis.from_url(store_server) as client:
                client.publish("three", "no")
                client.publish("one", "1")
                client.publish("two", "2")
            await eventually(lambda: len(listener.heard) == 2)
            assert (listener.heard, listener.returns) == ([b"1", b"2"], 1)

    asyncio.run(story())


def test_subscriber_listens_again_after_the_store_was_restarted_and_says_so(own_store):
    async def story() -> None:
        async with listening(own_store.url) as listener:
            own_store.kill()
            await eventually(lambda: not listener.subscriber.listening)
            await asyncio.to_thread(own_store.start)
            await eventually(lambda: listener.subscriber.listening)
            with own_store.client() as client:
                client.publish("two", "again")
            await eventually(lambda: listener.heard == [b"again"])
            assert listener.returns == 2

    own_store.start()
    asyncio.run(story())


def test_subscriber_waits_for_a_store_that_is_not_there_yet(own_store):
    async def story() -> None:
        listener = Listening(own_store.url)
        task = asyncio.create_task(listener.subscriber.run())
        await asyncio.sleep(0)
        await asyncio.to_thread(own_store.start)
        await eventually(lambda: listener.subscriber.listening)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
