"""An agent after it was made: described anew, handed on, paused, deleted. Starts and stops no work."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from core.errors import InvalidFields

from . import access, audit, limits, locks, overrides, reach, selectors
from .errors import AccessDenied
from .models import Agent, ApiKey, FormerRuntime, RuntimeKind, Share
from .principals import Principal
from .runtimes import merged, shown
from .services import apply_limits, told_of_key


# -- Change ----------------------------------------------------------------------------------------------------------
def change_agent(
    *, principal: Principal, agent: Agent, changes: Mapping[str, Any], expected_version: int | None = None
) -> tuple[Agent, frozenset[str]]:
    """The agent with `changes` made, and the names of those that really changed something.

    `changes` may hold `description`, `owner` (a user name), `runtime` (merged into the one there is, see `runtimes.merged`)
    and capacity settings; a `max_parallel_tasks` ends an override. One transaction under the agent's row lock; one step of
    `settings_version`, an audit entry for each name. Raises what `access.require` does, `InvalidFields`, REST framework's
    `ValidationError` for a runtime that is none, `AccessDenied` for a command by anyone but a superuser,
    `PreconditionFailed`.
    """
    access.require(principal, access.Verb.OWN, agent)
    settings = {name: changes[name] for name in limits.NAMES if name in changes}
    checked = limits.check(settings, ceiling=selectors.ceiling())
    with transaction.atomic():
        row = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        locks.check_version(row.settings_version, expected_version)
        version = row.settings_version
        raised = apply_limits(row, checked, principal)
        told = {name: _WRITE[name](principal, row, changes[name]) for name in _WRITE if name in changes}
        real = {name: entry for name, entry in told.items() if entry is not None}
        if real:
            row.settings_version = version + 1
            row.save(update_fields=["settings_version", *(column for name in real for column in _COLUMNS[name])])
        for name, (was, now) in real.items():
            audit.record(principal, name, agent=row, before=was, after=now)
    return row, frozenset({*raised, *real})


#: What an audit entry tells of a change; None where nothing changed.
_Told = tuple[Any, Any] | None


def _describe(_principal: Principal, row: Agent, text: str) -> _Told:
    was, row.description = row.description, text
    return None if was == text else (was, text)


def _hand_on(principal: Principal, row: Agent, username: str) -> _Told:
    heir = User.objects.filter(username=username, is_active=True).first()
    if heir is None:
        raise InvalidFields.of("owner", "owner must be the user name of an active user")
    if heir.pk == row.owner_id:
        return None
    was, row.owner = row.owner.get_username(), heir
    Share.objects.filter(agent=row, user=heir).delete()
    # Whoever made them knows them, and they reach what their maker's agents reach.
    for key in ApiKey.objects.select_related("owner").filter(agent=row, revoked_at=None).exclude(owner=heir):
        ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
        audit.record(principal, "key_revoked", agent=row, before=told_of_key(key))
    return was, heir.get_username()


def _reach_anew(principal: Principal, row: Agent, patch: Mapping[str, Any]) -> _Told:
    runtime = merged(row, patch)
    kind, own = RuntimeKind(runtime["kind"]), {name: value for name, value in runtime.items() if name != "kind"}
    if kind is RuntimeKind.COMMAND and not principal.is_superuser:
        raise AccessDenied("Only superusers can configure command runtimes")
    if (kind, own) == (row.runtime_kind, row.runtime):
        return None
    was = shown(row)
    reach.keep_former(row, kind=kind, runtime=own)
    row.runtime_kind, row.runtime = kind, own
    # Without the secrets: where only one of them is another, both read the same.
    return was, shown(row)


_WRITE: dict[str, Callable[[Principal, Agent, Any], _Told]] = {"description": _describe, "owner": _hand_on, "runtime": _reach_anew}
_COLUMNS = {"description": ["description"], "owner": ["owner"], "runtime": ["runtime_kind", "runtime"]}


def end_overrides() -> Iterator[Agent]:
    """Each agent whose override has run out, its former limit back; that is a fact when the agent is yielded."""
    for pk in list(overrides.expired().values_list("pk", flat=True)):
        with transaction.atomic():
            # Asked again under its lock: another pass may have been here, or the override may last longer by now.
            row = overrides.expired().select_for_update(no_key=True).filter(pk=pk).first()
            if row is not None and row.base_max_parallel_tasks is not None:
                apply_limits(row, {"max_parallel_tasks": row.base_max_parallel_tasks}, None)
        if row is not None:
            yield row


# -- Pause -----------------------------------------------------------------------------------------------------------
def set_paused(*, principal: Principal, agent: Agent, paused: bool) -> Agent:
    """The agent, paused or not; an audit entry where that is new. Raises what `access.require` does."""
    access.require(principal, access.Verb.OWN, agent)
    with transaction.atomic():
        row = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        if row.paused != paused:
            row.paused = paused
            row.save(update_fields=["paused"])
            audit.record(principal, "paused", agent=row, before=not paused, after=paused)
    return row


def set_fleet_paused(*, principal: Principal, paused: bool) -> bool:
    """Whether all agents are paused now, whatever each one's own state. Raises `PersonRequired`, `AccessDenied`."""
    access.require_superuser(principal)
    with transaction.atomic():
        row = locks.fleet()
        if row.paused != paused:
            row.paused = paused
            row.save(update_fields=["paused"])
            audit.record(principal, "fleet_paused", before=not paused, after=paused)
    return paused


# -- End -------------------------------------------------------------------------------------------------------------
def delete_agent(*, principal: Principal, agent: Agent) -> Agent:
    """The agent, deleted: its name is free, its keys are refused, its row stays. Raises what `access.require` does.

    What it has in line and in its slots is the caller's to end.
    """
    access.require(principal, access.Verb.OWN, agent)
    with transaction.atomic():
        row = locks.living(agent, principal=principal, verb=access.Verb.OWN)
        row.deleted_at = timezone.now()
        row.save(update_fields=["deleted_at"])
        ApiKey.objects.filter(agent=row, revoked_at=None).update(revoked_at=row.deleted_at)
        audit.record(principal, "deleted", agent=row, before=False, after=True)
    return row


def note_cleared(agent: Agent) -> None:
    """Record that nothing of a deleted agent runs or is kept in the slot store; its secrets go as well."""
    if Agent.objects.filter(pk=agent.pk, deleted_at__isnull=False).update(cleared_at=timezone.now(), runtime={}):
        FormerRuntime.objects.filter(agent=agent).delete()
