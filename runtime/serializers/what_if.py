"""Bodies of what-if."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backlog.what_if import Figures

from ..what_if import Answer, Window


def seconds(milliseconds: float | None) -> float | None:
    """In seconds."""
    return None if milliseconds is None else round(milliseconds / 1000, 3)


class FiguresOut(serializers.Serializer):
    """How a window went, or would have gone, of `Figures`; the limit in the context."""

    started = serializers.IntegerField(help_text="Of what arrived in the window.")
    wait_p50_seconds = serializers.SerializerMethodField(help_text="Of those that started; null where none did.")
    wait_p95_seconds = serializers.SerializerMethodField()
    peak_running = serializers.IntegerField(help_text="The most slots in use at once.")
    peak_waiting = serializers.IntegerField(help_text="The most in line at once.")
    utilisation = serializers.SerializerMethodField(help_text="Slots in use on average, as a share of the limit.")
    left = serializers.IntegerField(help_text="Left the line without a start: cancelled or expired.")

    def get_wait_p50_seconds(self, figures: Figures) -> float | None:
        """Half waited no longer."""
        return seconds(figures.wait_p50)

    def get_wait_p95_seconds(self, figures: Figures) -> float | None:
        """All but one in twenty waited no longer."""
        return seconds(figures.wait_p95)

    def get_utilisation(self, figures: Figures) -> float:
        """Above 1 where more ran than the limit lets, for a limit that was another then."""
        return round(figures.mean_running / max(1, self.context["limit"]), 4)


class OutcomeOut(FiguresOut):
    """How the window would have gone with `limit` slots."""

    limit = serializers.SerializerMethodField()
    rejected = serializers.IntegerField(help_text="Would have been refused.")

    def get_limit(self, _figures: Figures) -> int:
        """The limit that was replayed."""
        limit: int = self.context["limit"]
        return limit


class WhatIfOut(serializers.Serializer):
    """An agent's window under other limits, and what really happened, of an `Answer`."""

    agent_name = serializers.SerializerMethodField()
    window = serializers.SerializerMethodField()
    since = serializers.DateTimeField(source="about.since", help_text="Later than the window's beginning where `truncated`.")
    until = serializers.DateTimeField(source="about.until")
    truncated = serializers.BooleanField(source="about.truncated", help_text="The newest rows alone were replayed.")
    arrivals = serializers.IntegerField(source="about.arrivals")
    assumed_runs = serializers.IntegerField(source="about.assumed", help_text="Arrivals whose run time isn't known: `typical_run_seconds`.")
    typical_run_seconds = serializers.SerializerMethodField()
    limit = serializers.SerializerMethodField()
    depth = serializers.SerializerMethodField()
    actual = serializers.SerializerMethodField()
    results = serializers.SerializerMethodField()

    def get_agent_name(self, _answer: Answer) -> str:
        """The agent."""
        name: str = self.context["name"]
        return name

    def get_window(self, _answer: Answer) -> str:
        """As asked."""
        return str(Window(self.context["window"]))

    def get_typical_run_seconds(self, answer: Answer) -> float:
        """The median of the runs that have ended."""
        return seconds(answer.about.typical_run) or 0.0

    def get_limit(self, _answer: Answer) -> int:
        """The agent's limit in force now; what it was in the window isn't known."""
        limit: int = self.context["limit"]
        return limit

    def get_depth(self, _answer: Answer) -> int:
        """How many may wait in the replay."""
        depth: int = self.context["depth"]
        return depth

    @extend_schema_field(FiguresOut)
    def get_actual(self, answer: Answer) -> Any:
        """What really happened; what was refused isn't known."""
        return FiguresOut(answer.actual, context={"limit": self.context["limit"]}).data

    @extend_schema_field(OutcomeOut(many=True))
    def get_results(self, answer: Answer) -> Any:
        """One for each limit, the lowest first."""
        return [OutcomeOut(figures, context={"limit": limit}).data for limit, figures in answer.results.items()]
