"""Ageing what is stored, so that clocks of the database and of Redis need not be waited for nor replaced."""

from datetime import timedelta

import redis
from django.db.models import DateTimeField, F

from backlog.models import Execution
from capacity import keys


def age_row(execution: Execution, seconds: float) -> Execution:
    """The row as it would stand after `seconds` more, fresh from the database."""
    moments = [f.name for f in Execution._meta.concrete_fields if isinstance(f, DateTimeField)]
    Execution.objects.filter(id=execution.id).update(**{name: F(name) - timedelta(seconds=seconds) for name in moments})
    return Execution.objects.get(id=execution.id)


def age_slot(store: redis.Redis, name: str, execution_id: object, seconds: float) -> None:
    """Agent `name`'s slot as it would stand after `seconds` more: taken, lease and hard limit that much earlier."""
    member = str(execution_id)
    token, phase, number, hard, started = store.hget(keys.holders(name), member).decode().split(" ")
    aged = " ".join([token, phase, number, f"{float(hard) - seconds:.6f}", started])
    with store.pipeline() as pipe:
        pipe.hset(keys.holders(name), member, aged)
        pipe.zincrby(keys.slots(name), -seconds, member)
        pipe.zincrby(keys.leases(), -seconds, f"{name}:{member}")
        pipe.pexpireat(keys.slot(name, member), store.pexpiretime(keys.slot(name, member)) - int(seconds * 1000))
        pipe.execute()


def age_ending(store: redis.Redis, token: object, seconds: float) -> None:
    """As if the fenced run of `token` had been told to end that much earlier, and asked last then."""
    for field in ("told", "next"):
        store.hincrby(keys.ending(token), field, -int(seconds * 1_000_000))
