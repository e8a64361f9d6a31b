"""Make stored times older, instead of waiting: what would be read after some seconds without a change."""

import math
import uuid

import redis

from capacity import keys


def age_slot(valkey: redis.Redis, agent: str, execution_id: uuid.UUID, seconds: float) -> None:
    """A slot as it would stand after `seconds` more: its clock, its lease, its hard limit, its display hash."""
    member = str(execution_id)
    valkey.zincrby(keys.slots(agent), -seconds, member)
    valkey.zincrby(keys.leases(), -seconds, f"{agent}:{member}")
    token, phase, number, hard, started = valkey.hget(keys.holders(agent), member).decode().split()
    older = float(hard) - seconds
    valkey.hset(keys.holders(agent), member, f"{token} {phase} {number} {older:.6f} {started}")
    valkey.expireat(keys.slot(agent, member), math.ceil(older))
