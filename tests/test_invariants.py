"""The checker itself: what is healthy passes, and each violation is found by name."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests import invariants
from tests.invariants import SeenAgent, SeenGrant, SeenHolder, SeenRow, SeenWait, Violation

AGENT = SeenAgent(name="a", limit=2, depth=10)
STARTED = SeenRow(id=1, agent="a", status="running", slot_token="t1", slot_number=1, started=True, queued_at=1)
GRANTED = SeenRow(id=2, agent="a", status="running", slot_token="t2", slot_number=2, queued_at=2, session=7)
WAITING = SeenRow(id=3, agent="a", status="queued", queued_at=3)
FOLLOWING = SeenRow(id=4, agent="a", status="queued", queued_at=4, startable=False, session=7)
ENDED = SeenRow(id=5, agent="a", status="success", started=True, queued_at=0)
ROWS = (STARTED, GRANTED, WAITING, FOLLOWING, ENDED)
FIRST = SeenHolder(agent="a", execution_id=1, token="t1", number=1)
SECOND = SeenHolder(agent="a", execution_id=2, token="t2", number=2, phase="granted")
HOLDERS = (FIRST, SECOND)


def rest(*, rows: tuple[SeenRow, ...] = ROWS, holders: tuple[SeenHolder, ...] = HOLDERS, agent: SeenAgent = AGENT, **more: object) -> None:
    """Look at one agent."""
    invariants.check_rest(rows=rows, holders=holders, agents=[agent], **more)  # type: ignore[arg-type]


def changed(row: SeenRow, **columns: object) -> tuple[SeenRow, ...]:
    """The healthy rows, one of them with other columns."""
    return tuple(replace(one, **columns) if one is row else one for one in ROWS)  # type: ignore[arg-type]


def broken(match: str, check: Callable[[], None]) -> None:
    """`check` must complain, in this word."""
    with pytest.raises(Violation, match=f"^{match}"):
        check()


def ended(*, rows: tuple[SeenRow, ...] = (ENDED,), accepted: tuple[int, ...] = (5,), **more: object) -> None:
    """Look at the end."""
    invariants.check_ended(rows=rows, accepted=accepted, **({"begun": Counter({5: 1})} | more))  # type: ignore[arg-type]


# -- At rest ---------------------------------------------------------------------------------------------------------
def test_a_healthy_fleet_passes() -> None:
    rest()
    rest(rows=(), holders=())
    rest(fleet_limit=2)


def test_a_free_slot_beside_a_paused_agent_or_below_a_full_cap_is_no_violation() -> None:
    rows, holders = (STARTED, WAITING), (FIRST,)
    broken("IDLE", lambda: rest(rows=rows, holders=holders))
    rest(rows=rows, holders=holders, agent=replace(AGENT, paused=True))
    rest(rows=rows, holders=holders, fleet_limit=1)
    broken("IDLE", lambda: rest(rows=rows, holders=holders, fleet_limit=2))
    rest(rows=rows, holders=holders, agent=replace(AGENT, limit=1))
    rest(rows=(STARTED, replace(WAITING, startable=False)), holders=holders)


def test_holders_of_agents_not_looked_at_count_for_the_cap_only() -> None:
    other = SeenHolder(agent="b", execution_id=9, token="t9", number=50, phase="lost")
    rest(rows=(STARTED, WAITING), holders=(FIRST, other), fleet_limit=2)
    broken("IDLE", lambda: rest(rows=(STARTED, WAITING), holders=(FIRST, other), fleet_limit=3))


@pytest.mark.parametrize(
    ("rows", "holders"),
    [
        pytest.param(ROWS, (FIRST,), id="a row whose slot is gone"),
        pytest.param(changed(GRANTED, status="queued", slot_token=None), HOLDERS, id="a slot without a row"),
        pytest.param(ROWS, (FIRST, replace(SECOND, token="t0")), id="another token"),
        pytest.param(ROWS, (FIRST, replace(SECOND, execution_id=3)), id="another execution"),
        pytest.param(changed(GRANTED, slot_token=None), (FIRST,), id="a row that runs without a slot"),
        pytest.param(changed(GRANTED, status="failed"), HOLDERS, id="a row that has ended with a slot"),
        pytest.param(changed(WAITING, slot_token="t3"), HOLDERS, id="a row in line with a token"),
        pytest.param(ROWS, (replace(FIRST, phase="granted"), SECOND), id="a started row held as granted"),
        pytest.param(ROWS, (*HOLDERS, replace(SECOND, number=3)), id="a holder twice"),
    ],
)
def test_rows_and_holders_that_differ_are_apart(rows: tuple[SeenRow, ...], holders: tuple[SeenHolder, ...]) -> None:
    broken("APART", lambda: rest(rows=rows, holders=holders))


def test_a_lost_holder_is_not_at_rest() -> None:
    broken("LOST", lambda: rest(holders=(FIRST, replace(SECOND, phase="lost"))))


@pytest.mark.parametrize("number", [0, 1, 3, -1])
def test_a_number_that_is_anothers_or_beyond_the_limit_is_found(number: int) -> None:
    broken("NUMBERS", lambda: rest(holders=(FIRST, replace(SECOND, number=number))))


def test_a_limit_that_was_cut_leaves_numbers_up_to_the_largest_there_was() -> None:
    holders = (FIRST, replace(SECOND, number=3))
    rest(holders=holders, most_slots={"a": 3})
    rest(agent=replace(AGENT, limit=1), most_slots={"a": 2})
    broken("NUMBERS", lambda: rest(agent=replace(AGENT, limit=1)))


def test_more_holders_than_the_largest_limit_are_found() -> None:
    third = replace(WAITING, status="running", slot_token="t3")
    holders = (*HOLDERS, SeenHolder(agent="a", execution_id=3, token="t3", number=3))
    broken("NUMBERS", lambda: rest(rows=(STARTED, GRANTED, third, FOLLOWING), holders=holders))


def test_a_session_with_two_runs_or_two_that_may_start_is_found() -> None:
    broken("SESSION", lambda: rest(rows=changed(STARTED, session=7)))
    two = tuple(replace(row, session=8, startable=True) for row in (WAITING, FOLLOWING))
    broken("SESSION", lambda: rest(rows=(STARTED, GRANTED, *two)))
    broken("SESSION", lambda: rest(rows=changed(FOLLOWING, startable=True)))


def test_a_session_that_waits_for_nobody_is_found() -> None:
    rows = (STARTED, replace(GRANTED, session=None), FOLLOWING)
    broken("STUCK", lambda: rest(rows=rows))
    out_of_turn = replace(WAITING, session=7, queued_at=9)
    broken("STUCK", lambda: rest(rows=(STARTED, replace(GRANTED, session=None), FOLLOWING, out_of_turn)))


def test_more_in_line_than_the_depth_and_what_may_have_come_back_is_found() -> None:
    def line(count: int, **columns: bool) -> tuple[SeenRow, ...]:
        return (STARTED, GRANTED, *(replace(WAITING, id=100 + number, **columns) for number in range(count)))  # type: ignore[arg-type]

    rest(rows=line(12))
    rest(rows=line(13, front=True))
    rest(rows=line(13, retry=True))
    rest(rows=line(13), agent=replace(AGENT, depth=None))
    broken("DEPTH", lambda: rest(rows=line(13)))


def test_an_execution_with_two_rows_is_found() -> None:
    broken("TWICE", lambda: rest(rows=(*ROWS, ENDED)))
    broken("TWICE", lambda: ended(rows=(ENDED, ENDED)))


# -- At the end ------------------------------------------------------------------------------------------------------
def test_an_end_with_all_accounted_for_passes() -> None:
    cancelled = replace(WAITING, status="cancelled")
    ended(rows=(ENDED, cancelled), accepted=(5, 3, 5))
    ended(begun=None)
    ended(begun={}, ledger_is_whole=False)
    ended(rows=(ENDED, cancelled), accepted=())


def test_what_is_wrong_at_the_end_is_found() -> None:
    broken("LOST", lambda: ended(accepted=(5, 6)))
    broken("UNENDED", lambda: ended(rows=(ENDED, WAITING)))
    broken("UNENDED", lambda: ended(rows=(ENDED, STARTED), accepted=(5, 1)))
    broken("UNENDED", lambda: ended(rows=(replace(ENDED, slot_token="t5"),)))
    broken("TWICE", lambda: ended(begun={5: 2}))
    broken("GHOST", lambda: ended(begun={5: 1, 6: 1}))
    broken("UNBEGUN", lambda: ended(begun={}))


# -- While it goes on ------------------------------------------------------------------------------------------------
def test_a_peak_over_the_limit_is_found() -> None:
    invariants.check_peak({"a": (2, 2), "b": (0, 1)})
    broken("OVER", lambda: invariants.check_peak({"a": (3, 2), "b": (0, 1)}))


@pytest.mark.parametrize(
    ("ahead", "behind"),
    [
        pytest.param(WAITING, replace(WAITING, id=9, queued_at=4), id="by age"),
        pytest.param(replace(WAITING, id=9, queued_at=4, priority=6), WAITING, id="by priority"),
        pytest.param(replace(WAITING, id=9, queued_at=4, front=True, priority=0), replace(WAITING, priority=9), id="by front"),
    ],
)
def test_a_row_passed_over_is_found(ahead: SeenRow, behind: SeenRow) -> None:
    invariants.check_grant(granted=ahead, waiting=[ahead, behind], newcomer=False)
    invariants.check_sequence(rows=[behind, ahead], began=[ahead.id, behind.id, "unknown"])
    broken("ORDER", lambda: invariants.check_grant(granted=behind, waiting=[ahead], newcomer=False))
    broken("ORDER", lambda: invariants.check_sequence(rows=[behind, ahead], began=[behind.id, ahead.id]))


def test_a_newcomer_that_passes_anybody_is_found() -> None:
    newcomer = replace(STARTED, priority=9)
    invariants.check_grant(granted=newcomer, waiting=[newcomer], newcomer=True)
    invariants.check_grant(granted=newcomer, waiting=[replace(WAITING, agent="b")], newcomer=True)
    broken("ORDER", lambda: invariants.check_grant(granted=newcomer, waiting=[WAITING], newcomer=True))


def test_a_row_that_stood_in_line_while_later_ones_got_slots_is_found() -> None:
    wait = SeenWait(row=WAITING, seen_from=10.0, seen_until=20.0)
    later = SeenGrant(row=replace(WAITING, id=9, queued_at=11), came=11.0, at=15.0)

    def look(*, waits: tuple[SeenWait, ...] = (wait,), slots: int = 0, **changes: object) -> None:
        invariants.check_nobody_passed(waits=waits, grants=[replace(later, **changes)], most_slots={"a": slots, "b": slots})  # type: ignore[arg-type]

    broken("ORDER", look)
    look(slots=1)  # a claim of it may have been made and undone meanwhile
    look(at=9.0)
    look(at=20.0)  # it may have had its slot by then
    look(came=9.0)  # whoever granted it may have looked before the other came
    look(row=replace(later.row, priority=6))
    look(row=replace(later.row, front=True))
    look(row=replace(later.row, agent="b"))
    look(waits=(replace(wait, seen_until=14.0), replace(wait, row=replace(WAITING, priority=4))))
