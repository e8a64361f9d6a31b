"""What has happened to rights."""

from dataclasses import dataclass
from functools import partial

from django.db import transaction

from core import events
from core.events import Event


@dataclass(frozen=True, kw_only=True)
class RightsChanged(Event):
    """Who may see an agent is not as it was, or whose credential works; `agent` is "" where it is about no agent."""

    agent: str


def tell_rights_changed(agent: str = "") -> None:
    """Publish it once the present transaction is committed."""
    transaction.on_commit(partial(events.publish, RightsChanged(agent=agent)))
