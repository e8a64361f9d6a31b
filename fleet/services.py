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

from . import access, audit, keys, limits, locks, selectors
from .errors import AccessDenied, AgentExists, PreconditionFailed, UnusableKey
from .first_values import MAX_CEILING
from .models import Agent, ApiKey, AuditEntry, KeyScope, RuntimeKind
from .principals import Principal

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
    `AgentExists`.
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
            return Agent.objects.create(
                name=name,
                description=description,
                owner=principal.user,
                runtime_kind=kind,
                runtime=own,
                **chosen,
            )
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

    One transaction under the agent's row lock: the values, a step of `settings_version`, an audit entry for each setting
    that really changed. Changes nothing, and steps nothing, where all values stand already. Raises what `access.require`
    does, `InvalidFields`, `PreconditionFailed` where `expected_version` is no longer the version.
    """
    access.require(principal, access.Verb.CHANGE, agent)
    checked = limits.check(changes, ceiling=selectors.ceiling())
    with transaction.atomic():
        row = locks.living(agent, principal=principal, verb=access.Verb.CHANGE)
        if expected_version is not None and row.settings_version != expected_version:
            raise PreconditionFailed
        before = limits.values(row)
        apply_limits(row, {name: value for name, value in checked.items() if before[name] != value}, before, principal)
    return row, before


def apply_limits(row: Agent, changed: Mapping[str, int], before: Mapping[str, int], principal: Principal) -> None:
    """Write the limits that really changed to the locked row, with a step of its version and an audit entry each."""
    if not changed:
        return
    for name, value in changed.items():
        setattr(row, name, value)
    row.settings_version += 1
    row.changed_by, row.changed_at = principal.user, timezone.now()
    row.save(update_fields=[*changed, "settings_version", "changed_by", "changed_at"])
    AuditEntry.objects.bulk_create(audit.entry(principal, name, before[name], value, agent=row) for name, value in changed.items())


# -- The fleet -------------------------------------------------------------------------------------------------------
def set_ceiling(*, principal: Principal, value: Any) -> tuple[int, int]:
    """The ceiling as it is now and as it was before; stored limits of agents stay as they are.

    Raises `PersonRequired`, `AccessDenied`, `InvalidFields`.
    """
    access.require_superuser(principal)
    if type(value) is not int or not 1 <= value <= MAX_CEILING:
        raise InvalidFields.of("value", f"value must be an integer between 1 and {MAX_CEILING}")
    with transaction.atomic():
        row = locks.fleet()
        before, row.max_parallel_tasks_ceiling = row.max_parallel_tasks_ceiling, value
        if before != value:
            row.save(update_fields=["max_parallel_tasks_ceiling"])
            audit.entry(principal, "max_parallel_tasks_ceiling", before, value).save()
    return value, before


# -- People and keys -------------------------------------------------------------------------------------------------
def create_key(*, owner: User, scope: str, name: str, agent: Agent | None = None, expires_at: datetime | None = None) -> NewKey:
    """A new key. Raises `UnusableKey` where the owner may not have one of this scope."""
    _check_key(owner, KeyScope(scope), agent)
    key = keys.new_key()
    row = ApiKey.objects.create(
        name=name, owner=owner, scope=scope, agent=agent, expires_at=expires_at, prefix=keys.prefix_of(key), digest=keys.digest_of(key)
    )
    return NewKey(row=row, key=key)


def revoke_key(*, principal: Principal, key: ApiKey) -> None:
    """The key is refused from now on; again: nothing changes. Raises `PersonRequired`, `AccessDenied` for another's key."""
    access.require_person(principal)
    if key.owner_id != principal.user.pk and not principal.is_superuser:
        raise AccessDenied
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())


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
