"""Outcomes that are the same however an agent is reached."""

from .base import Result, Run, StopReason


def timed_out(run: Run) -> Result:
    """The outcome of a run that reached its limit."""
    return Result(error_code="timeout", error=f"Timed out after {run.timeout_seconds} seconds")


def lease_lost() -> Result:
    """The outcome of a run whose lease is not known to hold."""
    return Result(error_code=StopReason.LEASE_LOST.value, error="The lease on the slot ended before the run did")


def stopped(reason: StopReason) -> Result:
    """The outcome of a run that was told to stop."""
    return lease_lost() if reason is StopReason.LEASE_LOST else Result(error_code=reason.value, error=_SENTENCES[reason])


_SENTENCES = {
    StopReason.CANCELLED: "Cancelled",
    StopReason.SHUTDOWN: "The worker was stopped before the run ended",
}
