"""Bodies of shares and keys."""

from rest_framework import serializers

from core import api

from ..models import ApiKey, KeyScope

#: The scopes that a key of `/api/keys/` may have; one of scope agent is made at its agent.
PERSONAL_SCOPES = [(KeyScope.USER.value, KeyScope.USER.label), (KeyScope.SYSTEM.value, KeyScope.SYSTEM.label)]


class ShareIn(api.StrictSerializer):
    """With whom to share an agent."""

    username = api.CharField(max_length=150, help_text="The user name of an active user.")


class ShareOut(serializers.Serializer):
    """With whom an agent is shared."""

    username = serializers.CharField(source="user.username")
    created_at = serializers.DateTimeField()


class AgentKeyIn(api.StrictSerializer):
    """A new key of an agent."""

    name = api.CharField(max_length=100, blanks=False, help_text="What to call it.")
    expires_at = api.DateTimeField(required=False, allow_null=True, help_text="From when on it is refused; null: never.")


class KeyIn(AgentKeyIn):
    """A new key of the caller's own."""

    scope = api.ChoiceField(
        choices=PERSONAL_SCOPES,
        default=KeyScope.USER.value,
        help_text="`user`: it is its owner, in person. `system`: superusers make it, and it is nobody in person.",
    )


class KeyOut(serializers.Serializer):
    """A key as it is seen ever after."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="The beginning of the key.")
    scope = serializers.ChoiceField(choices=KeyScope.choices)
    agent = serializers.SerializerMethodField(help_text="The agent that a key of scope agent speaks for.")
    owner = serializers.CharField(source="owner.username")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")
    revoked_at = serializers.DateTimeField(allow_null=True)

    def get_agent(self, key: ApiKey) -> str | None:
        """Its name; null for keys of the other scopes."""
        return None if key.agent is None else key.agent.name
