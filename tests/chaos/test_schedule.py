"""Schedules of faults: from a seed, of all kinds, and never two at once for one part."""

from tests.chaos.schedule import Kind, schedule


def test_the_same_seed_gives_the_same_schedule_with_every_kind_in_each_round() -> None:
    kinds = tuple(Kind)
    first = schedule(seed=5, seconds=300, kinds=kinds)
    assert first == schedule(seed=5, seconds=300, kinds=kinds)
    assert first != schedule(seed=6, seconds=300, kinds=kinds)
    assert {fault.kind for fault in first} == set(kinds)
    assert all(fault.at + fault.lasts < 300.1 for fault in first)


def test_no_part_suffers_two_faults_at_once() -> None:
    faults = schedule(seed=7, seconds=600, kinds=tuple(Kind), gap=1.0)
    for number, fault in enumerate(faults):
        others = [other for other in faults[number + 1 :] if other.victim == fault.victim]
        assert all(other.at > fault.at + fault.lasts for other in others)
