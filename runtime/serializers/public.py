"""Bodies of what comes by public links."""

from rest_framework import serializers

from backlog.models import Execution, Status
from core import api

from .tasks import MAX_MESSAGE_CHARACTERS


class PublicMessageIn(api.StrictSerializer):
    """A visitor's message."""

    message = api.CharField(max_length=MAX_MESSAGE_CHARACTERS, blanks=False, help_text="What to say.")
    async_mode = api.BooleanField(required=False, help_text="false (the default): the response is the result; true: return at once.")


class PublicExecutionOut(serializers.Serializer):
    """An execution as the visitor sees it who submitted it: nothing of whose it is, or how it ran."""

    id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Status.choices)
    response = serializers.CharField(allow_null=True)
    error_code = serializers.SerializerMethodField()
    completed_at = serializers.DateTimeField(allow_null=True)

    def get_error_code(self, row: Execution) -> str | None:
        """Null unless it has failed or was cancelled."""
        return row.error_code or None
