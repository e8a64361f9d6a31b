"""Bodies of conversations."""

from core import api

from .tasks import MAX_MESSAGE_CHARACTERS


class ChatIn(api.StrictSerializer):
    """One turn of a conversation."""

    message = api.CharField(max_length=MAX_MESSAGE_CHARACTERS, blanks=False, help_text="What to say.")
    session_id = api.UUIDField(required=False, help_text="The conversation to go on with; without it a new one begins.")
