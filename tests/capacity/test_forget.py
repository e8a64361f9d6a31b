"""The keys of a deleted agent: gone when nothing of it holds a slot, and no sooner."""

import uuid

import pytest
import redis

from capacity import keys, slots
from capacity.leases import Lease
from capacity.slots import ForgetOutcome, TakeOutcome


@pytest.fixture
def gate(valkey: redis.Redis) -> redis.Redis:
    """The store with an open gate."""
    nonce = uuid.uuid4()
    assert slots.rebuild_begin(nonce=nonce)
    assert slots.rebuild_open(nonce=nonce)
    return valkey


def taken(agent: str, preview: str = "secret") -> Lease:
    """A slot of the agent."""
    lease = Lease(agent=agent, execution_id=uuid.uuid4(), token=uuid.uuid4(), timeout_seconds=900)
    assert slots.acquire(lease=lease, limit=3, fleet_limit=None, preview=preview).outcome == TakeOutcome.ACQUIRED
    return lease


def test_what_holds_a_slot_stays_but_shows_nothing(gate: redis.Redis) -> None:
    lease = taken("ada")
    version = slots.state("ada").version
    assert slots.forget("ada") == ForgetOutcome.HELD
    state = slots.state("ada")
    assert [(holder.execution_id, holder.message_preview) for holder in state.holders] == [(lease.execution_id, "")]
    assert state.version > version
    # Looked at again and again until it has ended: nothing is announced that is not new.
    assert slots.forget("ada") == ForgetOutcome.HELD
    assert slots.state("ada").version == state.version
    assert slots.renew(leases=[lease], lease_seconds=60) == [slots.RenewOutcome.OK]
    assert slots.release(lease=lease) == slots.ReleaseOutcome.RELEASED
    assert slots.forget("ada") == ForgetOutcome.FORGOTTEN


def test_with_the_last_holder_all_keys_go_and_other_agents_stay(gate: redis.Redis) -> None:
    slots.release(lease=taken("ada"))
    other = taken("bob")
    last = slots.state("ada").version
    with gate.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(keys.hints())
        listener.get_message(timeout=1)
        assert slots.forget("ada") == slots.forget("ada") == ForgetOutcome.FORGOTTEN
        assert listener.get_message(timeout=1)["data"].startswith(b"ada ")
    assert gate.keys("*ada*") == []
    assert not gate.hexists(keys.versions(), "ada")
    assert [holder.execution_id for holder in slots.state("bob").holders] == [other.execution_id]
    taken("ada")
    assert slots.state("ada").version > last


def test_while_the_gate_is_rebuilt_nothing_is_forgotten(valkey: redis.Redis) -> None:
    assert slots.forget("ada") == ForgetOutcome.REBUILDING
