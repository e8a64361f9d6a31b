"""The protocol holds over random schedules; each of its rules, left out, is caught."""

import sys

import pytest
import redis

from .mutations import MUTATIONS, Mutation
from .schedule import Counts, fresh_seed, run_schedule
from .world import Violation

SCHEDULES = 60
#: How far a left-out rule is looked for when the seeds that used to show it no longer do.
SEARCHED = 1500


def test_random_schedules_break_no_invariant(valkey: redis.Redis) -> None:
    first, counts = fresh_seed(), Counts()
    sys.stdout.write(f"model: seeds {first}..{first + SCHEDULES - 1}\n")
    for seed in range(first, first + SCHEDULES):
        run_schedule(seed=seed, valkey=valkey).count(counts)
    sys.stdout.write(f"model: {counts}\n")
    assert counts.schedules == SCHEDULES
    assert counts.done > SCHEDULES


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_rule_left_out_is_caught(mutation: Mutation, valkey: redis.Redis) -> None:
    with mutation.applied():
        shown = next(shown for seed in (*mutation.seeds, *range(SEARCHED)) if (shown := shows(mutation, seed, valkey)))
    assert shown in mutation.shows


def shows(mutation: Mutation, seed: int, valkey: redis.Redis) -> str:
    """The violation that this seed shows, by its first word; or ""."""
    try:
        run_schedule(seed=seed, valkey=valkey, rules=mutation.rules, faults=mutation.faults, http=mutation.http, crowded=mutation.crowded)
    except Violation as violation:
        return str(violation).split()[0]
    return ""


def test_a_change_to_a_script_that_no_longer_fits_is_noticed() -> None:
    stale = Mutation(name="stale", shows=(), faults=MUTATIONS[0].faults, lua=(("acquire", "no such text", ""),))
    with pytest.raises(AssertionError, match="no longer says"), stale.applied():
        pass
