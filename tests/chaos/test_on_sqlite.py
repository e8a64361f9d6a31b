"""Every fault in turn on a stack under load, on SQLite: nothing lost, nothing over, nothing twice."""

import pytest

from tests.chaos.lengths import carry_out, plans
from tests.chaos.plan import Plan


@pytest.mark.parametrize("plan", plans(postgres=False, seed=11))
def test_a_schedule_of_all_faults_on_sqlite_breaks_no_promise(plan: Plan) -> None:
    carry_out(plan)
