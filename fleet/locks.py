"""Rows to change, each held by the transaction that reads it."""

from . import access, selectors
from .errors import AgentNotFound, PreconditionFailed
from .models import Agent, FleetSettings
from .principals import Principal


def living(agent: Agent, *, principal: Principal, verb: str) -> Agent:
    """The agent as it is now, for a principal who may `verb` it now: it may have been handed on since they were let in.

    Raises `AgentNotFound` where it was deleted, and what `access.require` does.
    """
    # Not FOR UPDATE in full: inserting a row that refers to the agent needn't wait for us.
    row = Agent.objects.select_for_update(no_key=True).filter(pk=agent.pk, deleted_at=None).first()
    if row is None:
        raise AgentNotFound
    access.require(principal, verb, row)
    return row


def check_version(version: int, expected: int | None) -> None:
    """Raise `PreconditionFailed` where a locked row's version is not the expected one; None: any will do."""
    if expected is not None and version != expected:
        raise PreconditionFailed


def fleet() -> FleetSettings:
    """The fleet-wide settings, made where they are missing."""
    row = FleetSettings.objects.select_for_update().first()
    if row is None:
        row = selectors.first_fleet_settings()
        row.save(force_insert=True)
    return row
