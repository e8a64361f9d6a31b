"""The names of every Redis key of the slots.

All of them are gone at FLUSHALL and come back by a rebuild. Permanent (no TTL): `holders`, `slots`, `leases` (empty ones vanish),
`versions`, `epoch`, and `repairs`, a few counters. With a TTL: `slot`, `rebuild`, `reclaimed`, `ending`.
"""

SLOTS = "agent:slots:"
HOLDERS = "agent:holders:"
SLOT = "agent:slot:"


def slots(name: str) -> str:
    """ZSET: execution id → unix time at which its slot was taken."""
    return f"{SLOTS}{name}"


def holders(name: str) -> str:
    """HASH: execution id → `token phase number hard-limit started`, separated by blanks. All decisions read this."""
    return f"{HOLDERS}{name}"


def slot(name: str, execution_id: object) -> str:
    """HASH, for display only, gone at the hard limit: `started_at`, `message_preview`, `slot_number`, `timeout_seconds`."""
    return f"{SLOT}{name}:{execution_id}"


def leases() -> str:
    """ZSET: `{name}:{execution id}` of every holder of the fleet → unix time at which its lease ends."""
    return "agent:leases"


def versions() -> str:
    """HASH: agent → its version, which only grows."""
    return "agent:versions"


def epoch() -> str:
    """STRING: the server's `run_id` at the last rebuild."""
    return "agent:epoch"


def rebuild() -> str:
    """STRING, for seconds: `run_id nonce` of the rebuild under way; `run_id nonce done` after it."""
    return "agent:rebuild"


def reclaimed() -> str:
    """STRING, for an hour: unix time of the last reclaim pass."""
    return "agent:reclaimed"


def ending(token: object) -> str:
    """HASH, while a fenced run is told to end: `told`, `next` (µs: first told, to be asked again) and `pause` (seconds)."""
    return f"agent:ending:{token}"


def repairs() -> str:
    """HASH: kind of repair → how often it was made, by all processes; lost at a flush, as any counter may be."""
    return "trinity:repairs"


def hints() -> str:
    """The channel on which every change of an agent is announced: `name version`."""
    return "agent:hints"
