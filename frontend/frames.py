"""The frames of `/ws/capacity/`, as text ready to be sent."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

#: An agent's meter as the client gets it; None in a delta: the agent is gone, or no longer the reader's to see.
Value = dict[str, Any]
Values = Mapping[str, Value | None]

HEARTBEAT = '{"type":"heartbeat"}'


def snapshot(values: Values) -> str:
    """Everything the reader may see: it replaces all that the client holds."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return _text({"type": "snapshot", "server_time": now, "agents": values})


def delta(values: Values) -> str:
    """Whole values of the agents that changed."""
    return _text({"type": "delta", "agents": values})


def _text(frame: Mapping[str, Any]) -> str:
    return json.dumps(frame, separators=(",", ":"))
