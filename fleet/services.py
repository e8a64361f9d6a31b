"""Writes of the fleet: agents, their settings, keys, the first owner. Starts and stops no work."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from core.errors import InvalidFields

from . import access, audit, keys, limits, locks, overrides, selectors
from .errors import AccessDenied, AgentExists, UnusableKey
from .events import tell_rights_changed
from .models import Agent, ApiKey, AuditEntry, FleetSettings, KeyScope, RuntimeKind
from .principals import Principal
from .runtimes import shown

RESERVED_NAMES = frozenset({"slots"})


@dataclass(frozen=True)
class NewKey:
    """A key just made: its row, and the key itself, which nobody will see again."""

    row: ApiKey
    key: str


# -- Agents ----------------------------------------------------------------------------------------------------------
def create_agent(
    *,
    principal: Principal,
    name: str,
    runtime: Mapping[str, Any],
    description: str = "",
    settings: Mapping[str, Any] | None = None,
) -> Agent:
    """A new agent of the principal's.

    `runtime` is `{"kind", …}`, checked by `serializers.RuntimeField`; `settings` are capacity settings, the others take
    their defaults. Raises `PersonRequired`, `AccessDenied` (a command by anyone but a superuser), `InvalidFields`,
    `AgentExists`. Its first audit entry tells what it was made with, secrets left out.
    """
    access.require_person(principal)
    check_name(name)
    chosen = limits.check(settings or {}, ceiling=selectors.ceiling())
    kind = RuntimeKind(runtime["kind"])
    if kind is RuntimeKind.COMMAND and not principal.is_superuser:
        raise AccessDenied("Only superusers can configure command runtimes")
    own: Any = {key: value for key, value in runtime.items() if key != "kind"}
    try:
        with transaction.atomic():
            made = Agent.objects.create(
                name=name,
                description=description,
                owner=principal.user,
                runtime_kind=kind,
                runtime=own,
                **chosen,
            )
            audit.record(principal, "created", agent=made, after={"runtime": shown(made), **limits.values(made)})
            return made
    except IntegrityError as error:
        raise AgentExists(name=name) from error


def check_name(name: str) -> None:
    """Raise `InvalidFields` unless `name` can be an agent's."""
    if not access.NAME.fullmatch(name):
        raise InvalidFields.of("name", "name must be 1 to 63 lower-case letters, digits and inner hyphens")
    if name in RESERVED_NAMES:
        raise InvalidFields.of("name", f"name must not be '{name}'")


def change_limit(
    *, principal: Principal, agent: Agent, changes: Mapping[str, Any], expected_version: int | None = None
) -> tuple[Agent, dict[str, int]]:
    """The agent with `changes` of its capacity settings made, and those settings as they were before.

    With `override_until` the `max_parallel_tasks` holds until then; without it, or with None, it is the lasting one and ends
    an override. One transaction under the agent's row lock: the values, a step of `settings_version`, an audit entry for each
    setting that really changed. Changes nothing, and steps nothing, where all values stand already. Raises what
    `access.require` does, `InvalidFields`, `PreconditionFailed` where `expected_version` is no longer the version.
    """
    access.require(principal, access.Verb.CHANGE, agent)
    until: datetime | None = changes.get("override_until")
    checked = limits.check({name: value for name, value in changes.items() if name != "override_until"}, ceiling=selectors.ceiling())
    if until is not None and "max_parallel_tasks" not in checked:
        raise InvalidFields.of("max_parallel_tasks", "max_parallel_tasks is required", code="required")
    with transaction.atomic():
        row = locks.living(agent, principal=principal, verb=access.Verb.CHANGE)
        locks.check_version(row.settings_version, expected_version)
        before = limits.values(row)
        if until is not None:
            overrides.check_until(row, until)
        apply_limits(row, checked, principal, until=until)
    return row, before


def apply_limits(row: Agent, wanted: Mapping[str, int], principal: Principal | None, *, until: datetime | None = None) -> frozenset[str]:
    """Write the limits to the locked row; returns the names of what really changed, each of which gets an audit entry.

    The version takes one step, if anything did. Without a principal it is the system's own act.
    """
    before = limits.told(row)
    if "max_parallel_tasks" in wanted:
        overrides.lay(row, until)
    for name, value in wanted.items():
        setattr(row, name, value)
    after = limits.told(row)
    changed = [name for name in limits.TOLD if before[name] != after[name]]
    if changed:
        row.settings_version += 1
        row.changed_by, row.changed_at = None if principal is None else principal.user, timezone.now()
        stamps = ("base_max_parallel_tasks", "settings_version", "changed_by", "changed_at")
        row.save(update_fields=[*limits.TOLD, *stamps])
        AuditEntry.objects.bulk_create(audit.entry(principal, name, before[name], after[name], agent=row) for name in changed)
    return frozenset(changed)


# -- The fleet -------------------------------------------------------------------------------------------------------
def set_ceiling(*, principal: Principal, value: Any, expected_version: int | None = None) -> FleetSettings:
    """The fleet's settings with this ceiling; stored limits of agents stay as they are.

    Raises `PersonRequired`, `AccessDenied`, `InvalidFields`, `PreconditionFailed`.
    """
    access.require_superuser(principal)
    limits.check_ceiling(value)
    with transaction.atomic():
        row = locks.fleet()
        locks.check_version(row.ceiling_version, expected_version)
        before, row.max_parallel_tasks_ceiling = row.max_parallel_tasks_ceiling, value
        if before != value:
            row.ceiling_version += 1
            row.save(update_fields=["max_parallel_tasks_ceiling", "ceiling_version"])
            audit.record(principal, "max_parallel_tasks_ceiling", before=before, after=value)
    return row


def set_cap(*, principal: Principal, value: Any, on_full: str | None = None, expected_version: int | None = None) -> FleetSettings:
    """The fleet's settings with this cap on held slots (None: no cap); `on_full` None leaves it as it is.

    One step of `cap_version` and an audit entry for each of the two that really changed. Raises `PersonRequired`,
    `AccessDenied`, `InvalidFields`, `PreconditionFailed`.
    """
    access.require_superuser(principal)
    wanted: dict[str, Any] = {"max_concurrent_tasks": limits.check_cap(value)}
    if on_full is not None:
        wanted["on_full"] = limits.check_on_full(on_full)
    with transaction.atomic():
        row = locks.fleet()
        locks.check_version(row.cap_version, expected_version)
        before = {name: getattr(row, name) for name in wanted}
        changed = [name for name in wanted if before[name] != wanted[name]]
        for name in changed:
            setattr(row, name, wanted[name])
            audit.record(principal, name, before=before[name], after=wanted[name])
        if changed:
            row.cap_version += 1
            row.save(update_fields=[*changed, "cap_version"])
    return row


# -- People and keys -------------------------------------------------------------------------------------------------
def create_key(
    *,
    owner: User,
    scope: str,
    name: str,
    agent: Agent | None = None,
    expires_at: datetime | None = None,
    principal: Principal | None = None,
) -> NewKey:
    """A new key of the owner's, with an audit entry; `principal` None: made by whoever runs this system.

    Raises `UnusableKey` where the owner may not have one of this scope, `InvalidFields` where it would have expired already.
    """
    _check_key(owner, KeyScope(scope), agent)
    if expires_at is not None and expires_at <= timezone.now():
        raise InvalidFields.of("expires_at", "expires_at must be in the future")
    key = keys.new_key()
    with transaction.atomic():
        if agent is not None:  # handed on meanwhile, it takes no key of its former owner any more
            locks.living(agent, principal=Principal.of_user(owner), verb=access.Verb.OWN)
        row = ApiKey.objects.create(
            name=name, owner=owner, scope=scope, agent=agent, expires_at=expires_at, prefix=keys.prefix_of(key), digest=keys.digest_of(key)
        )
        audit.record(principal, "key_made", agent=agent, after=told_of_key(row))
    row.refresh_from_db(fields=["created_at"])
    return NewKey(row=row, key=key)


def revoke_key(*, principal: Principal, key: ApiKey) -> None:
    """The key is refused from now on; again: nothing changes.

    Raises `PersonRequired`, and `AccessDenied` for a key that is neither theirs nor their agent's.
    """
    access.require_person(principal)
    if key.owner_id != principal.user.pk and not (key.agent and access.may(principal, access.Verb.OWN, key.agent)):
        access.require_superuser(principal)
    with transaction.atomic():
        if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record(principal, "key_revoked", agent=key.agent, before=told_of_key(key))
            tell_rights_changed(key.agent.name if key.agent else "")


def told_of_key(key: ApiKey) -> dict[str, str]:
    """What an audit entry tells of a key: never the key."""
    return {"name": key.name, "scope": key.scope, "prefix": key.prefix, "owner": key.owner.get_username()}


def _check_key(owner: User, scope: KeyScope, agent: Agent | None) -> None:
    if not owner.is_active:
        raise UnusableKey(f"{owner.get_username()} is not active")
    if (scope is KeyScope.AGENT) != (agent is not None):
        raise UnusableKey("An agent is named for a key of scope agent, and for no other")
    if scope is KeyScope.SYSTEM and not owner.is_superuser:
        raise UnusableKey("Only superusers can have system keys")
    if agent is not None and not access.may(Principal.of_user(owner), access.Verb.OWN, agent):
        raise UnusableKey("Only the agent's owner can have a key for it")


def ensure_owner() -> str | None:
    """The password of the superuser `owner`, made now because there were no users; None where there are some."""
    if User.objects.exists():
        return None
    password = secrets.token_urlsafe(12)
    try:
        with transaction.atomic():
            User.objects.create_superuser("owner", password=password)
    except IntegrityError:  # another process was first, and tells its own password
        return None
    return password
