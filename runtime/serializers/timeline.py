"""Answers about spans of time."""

from rest_framework import serializers

from .. import timeline


def _column(child: serializers.Field, help_text: str) -> serializers.ListField:
    return serializers.ListField(child=child, help_text=help_text)


class TimelineColumnsOut(serializers.Serializer):
    """One list for each thing told of the executions, all of one length and in one order."""

    id = _column(serializers.UUIDField(), "The execution's.")
    agent = _column(serializers.IntegerField(), "The place of its agent's name in `agents`.")
    slot_number = _column(serializers.IntegerField(allow_null=True), "Null: it never had a slot.")
    status = _column(serializers.IntegerField(), "The place of its status in `statuses`.")
    queued_at = _column(serializers.IntegerField(), "When it took its place in line, in milliseconds since 1970.")
    started_after = _column(serializers.IntegerField(allow_null=True), "Milliseconds from `queued_at` to its start.")
    completed_after = _column(serializers.IntegerField(allow_null=True), "Milliseconds from `queued_at` to its end.")
    error_code = _column(serializers.CharField(allow_null=True), "Null unless it has failed or was cancelled.")
    retry_of = _column(serializers.UUIDField(allow_null=True), "The execution that it repeats.")
    message_preview = _column(serializers.CharField(), f"The message's first {timeline.PREVIEW_CHARACTERS} characters.")


class TimelineOut(serializers.Serializer):
    """What ran and waited in a span of time."""

    server_time = serializers.DateTimeField()
    to = serializers.DateTimeField()
    agents = serializers.ListField(child=serializers.CharField(), help_text="The names of all that were looked at.")
    statuses = serializers.ListField(child=serializers.ChoiceField(choices=timeline.STATUSES))
    columns = TimelineColumnsOut()
    truncated = serializers.BooleanField(help_text=f"More than {timeline.MOST_WAITING} wait; the others are left out.")
    next = serializers.URLField(allow_null=True, help_text="What ended earlier.")

    def get_fields(self) -> dict[str, serializers.Field]:
        """With `from`, which is no name in Python."""
        return {"from": serializers.DateTimeField(), **super().get_fields()}
