"""Who asks: a person, an agent or the system, whichever way they proved it."""

from dataclasses import dataclass
from enum import StrEnum

from django.contrib.auth.models import User

from .models import ApiKey, KeyScope


class PrincipalKind(StrEnum):
    """What kind of caller it is."""

    PERSON = "person"
    AGENT = "agent"
    SYSTEM = "system"


#: The kind of source of what comes by a public link.
PUBLIC = "public"


@dataclass(frozen=True)
class Source:
    """Where an execution says it comes from."""

    kind: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Principal:
    """A caller. `user` is the person, or the owner of the key; `agent_id` and `agent_name` are those of an agent key."""

    user: User
    kind: PrincipalKind = PrincipalKind.PERSON
    key: ApiKey | None = None
    agent_id: int | None = None
    agent_name: str = ""

    @classmethod
    def of_user(cls, user: User) -> "Principal":
        """The person who signed in."""
        return cls(user=user)

    @classmethod
    def of_key(cls, key: ApiKey) -> "Principal":
        """Whom the key speaks for; reads its owner and its agent."""
        if key.scope == KeyScope.SYSTEM:
            return cls(user=key.owner, kind=PrincipalKind.SYSTEM, key=key)
        if key.agent is not None:
            return cls(user=key.owner, kind=PrincipalKind.AGENT, key=key, agent_id=key.agent.pk, agent_name=key.agent.name)
        return cls(user=key.owner, key=key)

    @property
    def is_person(self) -> bool:
        """Whether a person speaks: signed in, or by their own user key."""
        return self.kind is PrincipalKind.PERSON

    @property
    def is_superuser(self) -> bool:
        """Whether a superuser speaks, in person."""
        return self.is_person and self.user.is_superuser

    @property
    def caller(self) -> str:
        """The scope of idempotency keys: a person is one caller by whatever credential, every other key is its own."""
        return f"user:{self.user.pk}" if self.is_person or self.key is None else f"key:{self.key.pk}"

    @property
    def source(self) -> Source:
        """What is kept with the executions it submits."""
        if self.is_person or self.key is None:
            return Source("user", self.user.get_username())
        if self.kind is PrincipalKind.AGENT:
            return Source("agent", self.agent_name)
        return Source("system", self.key.name)


@dataclass(frozen=True, kw_only=True)
class Submitter:
    """Who submitted an execution some time ago, as far as it is still known.

    `kind` and `name` are the `Source` of then; `user_id` and `key_id` are None for those that are gone; `active`: neither is
    the person shut out nor the key revoked. `link_id` is the public link's that it came by.
    """

    kind: str
    name: str
    user_id: int | None
    key_id: int | None
    active: bool
    link_id: int | None = None

    def principal(self) -> Principal | None:
        """Whom they are now; reads them. None where they are gone by now."""
        if self.key_id is not None:
            key = ApiKey.objects.select_related("owner", "agent").filter(pk=self.key_id).first()
            return None if key is None else Principal.of_key(key)
        user = None if self.user_id is None else User.objects.filter(pk=self.user_id).first()
        return None if user is None else Principal.of_user(user)
