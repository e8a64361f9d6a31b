"""Celery's entry points; arguments are ids."""

import uuid

from celery import shared_task

from . import dispatch
from .services import releases, repair, runs


@shared_task(name=dispatch.RUN_EXECUTION, ignore_result=True)
def run_execution(execution_id: str, token: str) -> None:
    """Carry an admitted execution; anything but a granted row with this token is dropped."""
    runs.run_execution(execution_id=uuid.UUID(execution_id), token=uuid.UUID(token))


@shared_task(name=dispatch.TERMINATE_LOST, ignore_result=True)
def terminate_lost(execution_id: str, token: str) -> None:
    """Ask the agent of a lost run to end it, and free its slot when it has."""
    repair.terminate_lost(execution_id=uuid.UUID(execution_id), token=uuid.UUID(token))


@shared_task(name=dispatch.END_RELEASED, ignore_result=True)
def end_released(execution_id: str, _token: str) -> None:
    """Ask the agent of a run whose slot was released by force to end it."""
    releases.end_released(execution_id=uuid.UUID(execution_id))
