"""What held calls wait for, as keys: the end of an execution (its id), or the next entry of its log."""

import uuid
from collections.abc import Iterable

from backlog import selectors as backlog

_BEHIND = "/"


def entry_behind(execution_id: uuid.UUID, after: int) -> str:
    """The key of an entry of its log after number `after`, or of its end; nothing announces it."""
    return f"{execution_id}{_BEHIND}{after}"


def finished(keys: Iterable[str]) -> set[str]:
    """Those of the keys that need not be waited for any longer, by at most two queries."""
    ends = {key: uuid.UUID(key) for key in keys if _BEHIND not in key}
    entries = {key: _read(key) for key in keys if _BEHIND in key}
    over = backlog.finished(list(ends.values())) if ends else set()
    last = backlog.last_entries({execution_id for execution_id, _ in entries.values()}) if entries else {}
    return {key for key, execution_id in ends.items() if execution_id in over} | {
        key for key, (execution_id, after) in entries.items() if execution_id not in last or last[execution_id] > after
    }


def _read(key: str) -> tuple[uuid.UUID, int]:
    execution_id, _, after = key.partition(_BEHIND)
    return uuid.UUID(execution_id), int(after)
