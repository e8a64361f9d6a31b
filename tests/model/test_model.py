"""The protocol holds over random schedules and in every scene; each of its rules, left out, is caught."""

import sys

import pytest
import redis

from tests.invariants import Violation

from .mutations import MUTATIONS, Mutation
from .rules import Rules
from .scenes import Scene
from .schedule import Counts, fresh_seed, run_schedule

pytestmark = pytest.mark.flows

SCHEDULES = 60
#: How far a left-out rule is looked for when the seeds that used to show it no longer do.
SEARCHED = 1500
TOLD = [mutation for mutation in MUTATIONS if mutation.scene]


def test_random_schedules_break_no_invariant(valkey: redis.Redis) -> None:
    first, counts = fresh_seed(), Counts()
    sys.stdout.write(f"model: seeds {first}..{first + SCHEDULES - 1}\n")
    for seed in range(first, first + SCHEDULES):
        run_schedule(seed=seed, valkey=valkey).count(counts)
    sys.stdout.write(f"model: {counts}\n")
    assert counts.schedules == SCHEDULES
    assert counts.done > SCHEDULES


@pytest.mark.parametrize("mutation", TOLD, ids=lambda mutation: mutation.name)
def test_every_scene_is_harmless_under_the_full_rules(mutation: Mutation, valkey: redis.Redis) -> None:
    play(mutation, Rules(), valkey)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_rule_left_out_is_caught(mutation: Mutation, valkey: redis.Redis) -> None:
    with mutation.applied():
        if mutation.scene is None:
            assert any(shows(mutation, seed, valkey) for seed in (*mutation.seeds, *range(SEARCHED)))
        else:
            with pytest.raises(Violation):
                play(mutation, mutation.rules, valkey)


def play(mutation: Mutation, rules: Rules, valkey: redis.Redis) -> None:
    """Play the mutation's scene."""
    assert mutation.scene is not None
    mutation.scene(Scene(rules=rules, valkey=valkey, limit=mutation.limit))


def shows(mutation: Mutation, seed: int, valkey: redis.Redis) -> bool:
    """Whether this seed breaks an invariant."""
    try:
        run_schedule(seed=seed, valkey=valkey, rules=mutation.rules, faults=mutation.faults, crowded=mutation.crowded)
    except Violation:
        return True
    return False


def test_a_change_to_a_script_that_no_longer_fits_is_noticed() -> None:
    stale = Mutation(name="stale", lua={"acquire": ("no such text", "")})
    with pytest.raises(AssertionError, match="no longer says"), stale.applied():
        pass
