"""Bodies of pauses, clears and releases."""

from core import api


class NothingIn(api.StrictSerializer):
    """A body that may be left out, and has no fields."""


class SlotReleaseIn(api.StrictSerializer):
    """Which execution's slot is to be given back."""

    execution_id = api.UUIDField()
    force = api.BooleanField(required=False, help_text="Free it at once, though its work may go on.")
