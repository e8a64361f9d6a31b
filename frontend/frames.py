"""The frames of the websockets, as text ready to be sent."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

#: An agent's meter as the client gets it; None in a delta: the agent is gone, or no longer the reader's to see.
Value = dict[str, Any]
Values = Mapping[str, Value | None]

HEARTBEAT = '{"type":"heartbeat"}'
END = '{"type":"end"}'


def snapshot(values: Values) -> str:
    """Everything the reader may see: it replaces all that the client holds."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text_of({"type": "snapshot", "server_time": now, "agents": values})


def delta(values: Values) -> str:
    """Whole values of the agents that changed."""
    return text_of({"type": "delta", "agents": values})


def entries(encoded: Sequence[str]) -> str:
    """The next entries of an execution's log, each of them text already."""
    return f'{{"type":"entries","entries":[{",".join(encoded)}]}}'


def execution(state: Mapping[str, Any]) -> str:
    """An execution as it stands now."""
    return text_of({"type": "execution", "execution": state})


def text_of(frame: Mapping[str, Any]) -> str:
    """JSON without spaces."""
    return json.dumps(frame, separators=(",", ":"))
