"""The rows that hold a slot, as the gate is refilled with them."""

from collections.abc import Iterator

from django.db.models import Case, Value, When
from django.db.models.functions import Left, Now

from backlog import selectors as rows

from . import slots
from .leases import HARD_LIMIT_MARGIN_SECONDS, Lease


def held_rows() -> Iterator[slots.Held]:
    """Every row that holds a slot, as the gate needs it; ages are on the database's clock."""
    # Of a deleted agent no message is shown: its name may be another's by now.
    shown = Case(When(agent__deleted_at=None, then=Left("message", rows.PREVIEW_CHARACTERS)), default=Value(""))
    started = rows.holding().filter(started_at__isnull=False).annotate(now=Now(), preview=shown)
    columns = ("id", "agent_name", "slot_token", "slot_number", "timeout_seconds", "preview", "started_at", "now")
    for row in started.values(*columns).iterator():
        started_at, token = row["started_at"], row["slot_token"]
        if started_at is None or token is None:
            continue
        age = (row["now"] - started_at).total_seconds()
        yield slots.Held(
            lease=Lease(
                agent=row["agent_name"], execution_id=row["id"], token=token,
                timeout_seconds=row["timeout_seconds"], number=row["slot_number"] or 0,
            ),
            age_seconds=age,
            remaining_seconds=max(0.0, row["timeout_seconds"] + HARD_LIMIT_MARGIN_SECONDS - age),
            preview=row["preview"],
        )  # fmt: skip
