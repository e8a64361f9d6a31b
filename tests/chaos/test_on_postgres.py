"""Every fault in turn on a stack under load, on PostgreSQL and Redis: nothing lost, nothing over, nothing twice."""

import os
import shutil

import pytest

from tests.chaos.lengths import carry_out, plans
from tests.chaos.plan import Plan
from tests.postgres import HOW_TO_GET_ONE, programs


@pytest.fixture
def server_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PostgreSQL to start; the stores are Redis's where that is installed."""
    if programs() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(HOW_TO_GET_ONE)
    if redis := shutil.which("redis-server"):
        monkeypatch.setenv("TEST_STORE_PROGRAM", redis)


@pytest.mark.usefixtures("server_programs")
@pytest.mark.parametrize("plan", plans(postgres=True, seed=12))
def test_a_schedule_of_all_faults_on_postgres_breaks_no_promise(plan: Plan) -> None:
    carry_out(plan)
