"""The slot scripts, on a real server."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import redis

from capacity import keys, slots
from capacity.errors import SlotsUnavailable
from capacity.leases import HARD_LIMIT_MARGIN_SECONDS, Lease
from capacity.slots import HandoverOutcome, Phase, ReclaimOutcome, ReleaseOutcome, RenewOutcome, TakeOutcome
from core import redis as core_redis
from core.embedded_store import free_port
from tests.ageing import age_slot

LEASE = 60
MARGIN = HARD_LIMIT_MARGIN_SECONDS


def a_lease(agent: str = "ada", *, timeout: int = 900, number: int = 0) -> Lease:
    return Lease(agent=agent, execution_id=uuid.uuid4(), token=uuid.uuid4(), timeout_seconds=timeout, number=number)


def take(lease: Lease, *, limit: int = 3, fleet_limit: int | None = None, preview: str = "hello") -> slots.Taken:
    return slots.acquire(lease=lease, limit=limit, fleet_limit=fleet_limit, preview=preview)


def taken(agent: str = "ada", *, limit: int = 3, timeout: int = 900) -> Lease:
    lease = a_lease(agent, timeout=timeout)
    assert take(lease, limit=limit).outcome == TakeOutcome.ACQUIRED
    return lease


def started(agent: str = "ada", *, limit: int = 3, timeout: int = 900) -> Lease:
    lease = taken(agent, limit=limit, timeout=timeout)
    assert renew(lease) == RenewOutcome.OK
    return lease


def renew(lease: Lease) -> RenewOutcome:
    return slots.renew(leases=[lease], lease_seconds=LEASE)[0]


def hand(done: Lease, following: Lease, **changes: object) -> slots.Handed:
    plain = {"limit": 3, "fleet_limit": None, "paused": False, "started": True, "lease_seconds": LEASE, "preview": "next"}
    return slots.handover(done=done, following=following, **(plain | changes))  # type: ignore[arg-type]


def other_token(lease: Lease) -> Lease:
    return Lease(agent=lease.agent, execution_id=lease.execution_id, token=uuid.uuid4(), timeout_seconds=lease.timeout_seconds)


def numbers(agent: str = "ada") -> list[int]:
    return [holder.number for holder in slots.state(agent).holders]


def rebuild(*holders: slots.Held) -> None:
    nonce = uuid.uuid4()
    assert slots.rebuild_begin(nonce=nonce)
    assert slots.rebuild_write(nonce=nonce, holders=holders, lease_seconds=LEASE)
    assert slots.rebuild_open(nonce=nonce)


def held(lease: Lease, *, age: float = 10, preview: str = "hello") -> slots.Held:
    return slots.Held(lease=lease, age_seconds=age, remaining_seconds=lease.timeout_seconds + MARGIN - age, preview=preview)


def restart(valkey: redis.Redis) -> None:
    """What a restart that kept its data looks like: the keys are there, the epoch is another run's."""
    valkey.set(keys.epoch(), "0" * 40)


@pytest.fixture(autouse=True)
def gate(valkey: redis.Redis) -> Iterator[redis.Redis]:
    """The store, rebuilt from no rows; afterwards every key must be known, and have a TTL where `keys` says so."""
    rebuild()
    slots._Reach.lost = False
    yield valkey
    permanent = (keys.SLOTS, keys.HOLDERS, keys.leases(), keys.versions(), keys.epoch())
    found = list(valkey.scan_iter(count=1000))
    with valkey.pipeline(transaction=False) as pipe:
        for key in found:
            pipe.ttl(key)
        lifetimes = pipe.execute()
    brief = (keys.SLOT, keys.rebuild(), keys.reclaimed())
    leaked = [key for key, ttl in zip(found, lifetimes, strict=True) if not key.decode().startswith(brief if ttl > 0 else permanent)]
    assert not leaked


class TestAcquire:
    def test_takes_the_lowest_free_number(self) -> None:
        first, _, _ = taken(), taken(), taken()
        assert numbers() == [1, 2, 3]
        slots.release(lease=first)
        assert take(a_lease()).number == 1
        assert numbers() == [1, 2, 3]

    def test_is_refused_at_the_limit_and_changes_nothing(self) -> None:
        holding = [taken() for _ in range(3)]
        before = slots.states(["ada"])
        assert take(a_lease()) == slots.Taken(outcome=TakeOutcome.FULL_AGENT, number=0, version=0)
        assert slots.states(["ada"]) == before
        assert {h.execution_id for h in slots.state("ada").holders} == {lease.execution_id for lease in holding}

    def test_answers_the_second_try_of_the_same_token_like_the_first(self) -> None:
        lease = a_lease()
        first = take(lease, limit=1)
        assert take(lease, limit=1) == slots.Taken(outcome=TakeOutcome.HELD, number=first.number, version=first.version)

    def test_says_busy_where_another_token_holds_it(self) -> None:
        assert take(other_token(taken())).outcome == TakeOutcome.BUSY

    @pytest.mark.parametrize("limit", [0, -1, "", "none", float("nan")])
    def test_a_limit_that_says_nothing_is_full(self, limit: int) -> None:
        assert take(a_lease(), limit=limit).outcome == TakeOutcome.FULL_AGENT

    def test_the_fleet_cap_counts_every_agents_holders(self) -> None:
        first = taken("ada")
        assert take(a_lease("bob"), fleet_limit=2).outcome == TakeOutcome.ACQUIRED
        assert take(a_lease("eve"), fleet_limit=2).outcome == TakeOutcome.FULL_FLEET
        assert take(a_lease("eve"), fleet_limit=0).outcome == TakeOutcome.FULL_FLEET
        slots.release(lease=first)
        assert take(a_lease("eve"), fleet_limit=2).outcome == TakeOutcome.ACQUIRED
        assert slots.fleet_count() == 2

    def test_a_holder_counts_after_its_lease_has_ended(self, valkey: redis.Redis) -> None:
        lease = started(limit=1)
        age_slot(valkey, "ada", lease.execution_id, LEASE + 1)
        assert take(a_lease(), limit=1).outcome == TakeOutcome.FULL_AGENT

    def test_threads_that_race_never_take_more_than_the_limit(self) -> None:
        holding, most, lock = set(), [0], threading.Lock()

        def race(_: int) -> int:
            won = 0
            for _ in range(30):
                lease = a_lease()
                if take(lease).outcome != TakeOutcome.ACQUIRED:
                    continue
                with lock:
                    holding.add(lease.token)
                    most[0] = max(most[0], len(holding))
                    holding.discard(lease.token) if slots.release(lease=lease) == ReleaseOutcome.RELEASED else None
                won += 1
            return won

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(race, range(16))) > 0
        assert most[0] <= 3
        assert slots.states(["ada"])["ada"].active == 0


class TestRelease:
    def test_frees_only_for_its_token_and_only_once(self) -> None:
        lease = taken()
        assert slots.release(lease=other_token(lease)) == ReleaseOutcome.ABSENT
        assert numbers() == [1]
        assert slots.release(lease=lease) == ReleaseOutcome.RELEASED
        assert slots.release(lease=lease) == ReleaseOutcome.ABSENT

    def test_a_late_release_leaves_the_new_holder_alone(self) -> None:
        old = taken(limit=1)
        slots.release(lease=old)
        new = other_token(old)
        take(new, limit=1)
        assert slots.release(lease=old) == ReleaseOutcome.ABSENT
        assert [h.token for h in slots.state("ada").holders] == [new.token]

    def test_frees_only_in_the_phase_that_was_seen(self) -> None:
        lease = taken()
        renew(lease)
        assert slots.release(lease=lease, phase=Phase.GRANTED) == ReleaseOutcome.ABSENT
        assert slots.release(lease=lease, phase=Phase.STARTED) == ReleaseOutcome.RELEASED

    def test_needs_no_display_hash(self, valkey: redis.Redis) -> None:
        lease = taken()
        valkey.delete(keys.slot("ada", lease.execution_id))
        assert [(h.number, h.message_preview) for h in slots.state("ada").holders] == [(1, "")]
        assert slots.release(lease=lease) == ReleaseOutcome.RELEASED
        assert slots.fleet_count() == 0


class TestHandover:
    def test_passes_the_slot_on_with_its_number(self) -> None:
        taken()
        done, following = started(), a_lease()
        handed = hand(done, following)
        assert (handed.outcome, handed.number) == (HandoverOutcome.GRANTED, 2)
        assert [(h.number, h.phase) for h in slots.state("ada").holders] == [(1, Phase.GRANTED), (2, Phase.STARTED)]
        assert slots.release(lease=done) == ReleaseOutcome.ABSENT

    def test_in_place_starts_on_a_short_lease_and_else_waits_for_its_worker(self) -> None:
        for begins, phase, ends in ((True, Phase.STARTED, LEASE), (False, Phase.GRANTED, 900 + MARGIN)):
            hand(started("bob", limit=1), following := a_lease("bob"), limit=1, started=begins)
            (holder,) = slots.state("bob").holders
            assert holder.phase == phase
            assert (holder.lease_ends_at - holder.taken_at).total_seconds() == pytest.approx(ends, abs=0.01)
            slots.release(lease=following)

    def test_answers_a_second_call_like_the_first(self) -> None:
        done, following = started(limit=1), a_lease()
        first = hand(done, following, limit=1)
        assert hand(done, following, limit=1) == first
        assert numbers() == [1]

    def test_grants_nothing_where_the_one_done_was_not_held(self) -> None:
        done = started()
        assert hand(other_token(done), a_lease()).outcome == HandoverOutcome.FOREIGN
        slots.release(lease=done)
        assert hand(done, a_lease()).outcome == HandoverOutcome.FOREIGN
        assert numbers() == []

    def test_only_releases_where_the_agent_is_paused_cut_or_the_fleet_was_full(self) -> None:
        for refusing in ({"paused": True}, {"limit": 1}, {"limit": 0}, {"fleet_limit": 2}):
            done, other = started(), started()
            assert hand(done, a_lease(), **refusing) == slots.Handed(
                outcome=HandoverOutcome.RELEASED, number=0, version=slots.state("ada").version
            )
            assert [h.token for h in slots.state("ada").holders] == [other.token]
            slots.release(lease=other)

    def test_leaves_a_row_alone_that_another_token_holds(self) -> None:
        done, held_already = started(), taken()
        assert hand(done, other_token(held_already)).outcome == HandoverOutcome.RELEASED
        assert [h.token for h in slots.state("ada").holders] == [held_already.token]

    def test_a_second_call_after_the_lease_was_lost_grants_nothing(self, valkey: redis.Redis) -> None:
        done, following = started(), a_lease()
        hand(done, following)
        slots.reclaim(lease_seconds=LEASE)
        age_slot(valkey, "ada", following.execution_id, LEASE + 1)
        assert [lost.token for lost in slots.reclaim(lease_seconds=LEASE).lost] == [following.token]
        assert hand(done, following).outcome == HandoverOutcome.FOREIGN


class TestRenew:
    def test_the_first_renewal_starts_the_slots_clock(self, valkey: redis.Redis) -> None:
        lease = taken()
        age_slot(valkey, "ada", lease.execution_id, 1000)
        assert renew(lease) == RenewOutcome.OK
        (holder,) = slots.state("ada").holders
        age = (datetime.now(UTC) - holder.taken_at).total_seconds()
        assert (holder.phase, holder.number) == (Phase.STARTED, 1)
        assert abs(age) < 5
        assert (holder.lease_ends_at - holder.taken_at).total_seconds() == pytest.approx(LEASE, abs=0.01)
        assert 900 + MARGIN - 5 < valkey.ttl(keys.slot("ada", lease.execution_id)) <= 900 + MARGIN + 1
        shown = valkey.hgetall(keys.slot("ada", lease.execution_id))
        assert datetime.fromisoformat(shown[b"started_at"].decode()) == holder.taken_at.replace(
            microsecond=datetime.fromisoformat(shown[b"started_at"].decode()).microsecond
        )
        assert (shown[b"message_preview"], shown[b"slot_number"], shown[b"timeout_seconds"]) == (b"hello", b"1", b"900")

    def test_later_renewals_move_the_lease_and_not_the_clock(self, valkey: redis.Redis) -> None:
        lease = started()
        version = slots.state("ada").version
        age_slot(valkey, "ada", lease.execution_id, 40)
        (before,) = slots.state("ada").holders
        assert renew(lease) == RenewOutcome.OK
        (after,) = slots.state("ada").holders
        assert after.taken_at == before.taken_at
        assert (after.lease_ends_at - before.lease_ends_at).total_seconds() == pytest.approx(40, abs=1)
        assert slots.state("ada").version == version

    def test_never_goes_past_the_hard_limit(self, valkey: redis.Redis) -> None:
        lease = started(timeout=60)
        age_slot(valkey, "ada", lease.execution_id, 60 + MARGIN - 20)
        assert renew(lease) == RenewOutcome.OK
        (holder,) = slots.state("ada").holders
        assert (holder.lease_ends_at - holder.taken_at).total_seconds() == pytest.approx(60 + MARGIN, abs=0.01)
        age_slot(valkey, "ada", lease.execution_id, 21)
        assert renew(lease) == RenewOutcome.REFUSED

    def test_never_brings_back_what_was_released_or_lost(self, valkey: redis.Redis) -> None:
        released, lost = started(), started()
        slots.release(lease=released)
        slots.reclaim(lease_seconds=LEASE)
        age_slot(valkey, "ada", lost.execution_id, LEASE + 1)
        slots.reclaim(lease_seconds=LEASE)
        answers = slots.renew(leases=[released, lost, other_token(lost)], lease_seconds=LEASE)
        assert answers == [RenewOutcome.REFUSED] * 3
        assert [h.phase for h in slots.state("ada").holders] == [Phase.LOST]

    def test_a_lease_that_ended_unseen_is_renewed_and_then_not_taken(self, valkey: redis.Redis) -> None:
        lease = started()
        slots.reclaim(lease_seconds=LEASE)
        age_slot(valkey, "ada", lease.execution_id, LEASE + 1)
        assert renew(lease) == RenewOutcome.OK
        assert slots.reclaim(lease_seconds=LEASE).lost == []

    def test_many_leases_are_one_round_trip_and_answered_in_order(self, valkey: redis.Redis) -> None:
        leases = [taken(f"agent-{n // 3}") for n in range(450)]
        for lease in leases[::7]:
            slots.release(lease=lease)
        asked = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
        answers = slots.renew(leases=leases, lease_seconds=LEASE)
        assert answers == [RenewOutcome.REFUSED if n % 7 == 0 else RenewOutcome.OK for n in range(450)]
        assert valkey.info("commandstats")["cmdstat_evalsha"]["calls"] - asked == 3

    def test_none_is_no_call(self) -> None:
        assert slots.renew(leases=[], lease_seconds=LEASE) == []


class TestReclaim:
    def test_marks_and_lists_the_lost_and_frees_nothing(self, valkey: redis.Redis) -> None:
        ran, waits, fine = started(), taken(timeout=60), started()
        slots.reclaim(lease_seconds=LEASE)
        age_slot(valkey, "ada", ran.execution_id, LEASE + 1)
        age_slot(valkey, "ada", waits.execution_id, 60 + MARGIN + 1)
        for _ in range(2):
            reclaimed = slots.reclaim(lease_seconds=LEASE)
            assert reclaimed.outcome == ReclaimOutcome.OK
            assert {(x.token, x.number, x.started) for x in reclaimed.lost} == {(ran.token, 1, True), (waits.token, 2, False)}
        assert slots.states(["ada"])["ada"].active == 3
        assert slots.states(["ada", "bob"])["ada"].lost == 2
        slots.release(lease=ran)
        assert [x.token for x in slots.reclaim(lease_seconds=LEASE).lost] == [waits.token]
        assert renew(fine) == RenewOutcome.OK

    def test_leaves_a_long_run_alone_while_it_is_renewed(self, valkey: redis.Redis) -> None:
        lease = started(timeout=7200)
        slots.reclaim(lease_seconds=LEASE)
        age_slot(valkey, "ada", lease.execution_id, 3900)
        renew(lease)
        assert slots.reclaim(lease_seconds=LEASE).lost == []

    def test_a_granted_slot_waits_for_its_worker_to_the_hard_limit(self, valkey: redis.Redis) -> None:
        lease = taken(timeout=7200)
        slots.reclaim(lease_seconds=LEASE)
        age_slot(valkey, "ada", lease.execution_id, 7200 + MARGIN - 5)
        assert slots.reclaim(lease_seconds=LEASE).lost == []

    @pytest.mark.parametrize("pause", ["long ago", "never", "out of reach"])
    def test_gives_started_runs_one_fresh_lease_after_a_pause(self, valkey: redis.Redis, pause: str) -> None:
        lease, past_hard_limit = started(), started(timeout=60)
        slots.reclaim(lease_seconds=LEASE)
        age_slot(valkey, "ada", lease.execution_id, LEASE + 1)
        age_slot(valkey, "ada", past_hard_limit.execution_id, 60 + MARGIN + 1)
        if pause == "long ago":
            valkey.set(keys.reclaimed(), f"{valkey.time()[0] - 31}", ex=3600)
        elif pause == "never":
            valkey.delete(keys.reclaimed())
        else:
            slots._Reach.lost = True
        assert [x.token for x in slots.reclaim(lease_seconds=LEASE).lost] == [past_hard_limit.token]
        age_slot(valkey, "ada", lease.execution_id, LEASE + 1)
        assert {x.token for x in slots.reclaim(lease_seconds=LEASE).lost} == {lease.token, past_hard_limit.token}


class TestRebuild:
    def test_nothing_changes_until_the_store_is_rebuilt(self, valkey: redis.Redis) -> None:
        lease = started()
        for lose in (valkey.flushdb, lambda: restart(valkey)):
            lose()
            assert take(a_lease()).outcome == TakeOutcome.REBUILDING
            assert slots.release(lease=lease) == ReleaseOutcome.REBUILDING
            assert hand(lease, a_lease()).outcome == HandoverOutcome.REBUILDING
            assert slots.renew(leases=[lease, lease], lease_seconds=LEASE) == [RenewOutcome.REBUILDING] * 2
            assert slots.reclaim(lease_seconds=LEASE) == slots.Reclaimed(outcome=ReclaimOutcome.REBUILDING, lost=[])
            for read in (lambda: slots.state("ada"), lambda: slots.states(["ada"]), slots.fleet_count, slots.holders_of_fleet):
                with pytest.raises(SlotsUnavailable):
                    read()

    def test_holders_keep_their_tokens_numbers_and_clocks(self, valkey: redis.Redis) -> None:
        leases = [a_lease(number=2), a_lease(number=3), a_lease("bob", number=1)]
        valkey.flushdb()
        rebuild(*(held(lease, age=30) for lease in leases))
        state = slots.state("ada")
        assert [(h.token, h.number, h.phase, h.message_preview) for h in state.holders] == [
            (leases[0].token, 2, Phase.STARTED, "hello"),
            (leases[1].token, 3, Phase.STARTED, "hello"),
        ]
        assert {(h.agent, h.token, round(h.age_seconds)) for h in slots.holders_of_fleet()} == {(x.agent, x.token, 30) for x in leases}
        assert take(a_lease(), limit=3).number == 1
        assert renew(leases[2]) == RenewOutcome.OK
        assert slots.fleet_count() == 4

    def test_what_an_earlier_life_left_behind_is_gone(self, valkey: redis.Redis) -> None:
        gone, stays = started(), started()
        taken("bob")
        slots.reclaim(lease_seconds=LEASE)
        restart(valkey)
        rebuild(held(stays))
        assert [h.token for h in slots.state("ada").holders] == [stays.token]
        assert slots.states(["ada", "bob"])["bob"].active == 0
        assert slots.fleet_count() == 1
        assert not valkey.exists(keys.slot("ada", gone.execution_id), keys.reclaimed())

    def test_a_number_that_is_missing_or_taken_becomes_the_lowest_free_one(self, valkey: redis.Redis) -> None:
        valkey.flushdb()
        rebuild(*(held(a_lease(number=number)) for number in (2, 2, 0)))
        assert numbers() == [1, 2, 3]

    def test_writing_twice_is_writing_once(self, valkey: redis.Redis) -> None:
        valkey.flushdb()
        nonce, lease = uuid.uuid4(), a_lease(number=2)
        for _ in range(2):
            assert slots.rebuild_begin(nonce=nonce)
        for _ in range(2):
            assert slots.rebuild_write(nonce=nonce, holders=[held(lease)], lease_seconds=LEASE)
        for _ in range(2):
            assert slots.rebuild_open(nonce=nonce)
        assert numbers() == [2]
        assert not slots.rebuild_begin(nonce=nonce)

    def test_a_second_rebuilder_is_turned_away(self, valkey: redis.Redis) -> None:
        valkey.flushdb()
        first, second = uuid.uuid4(), uuid.uuid4()
        assert slots.rebuild_begin(nonce=first)
        assert not slots.rebuild_begin(nonce=second)
        assert not slots.rebuild_write(nonce=second, holders=[held(a_lease())], lease_seconds=LEASE)
        assert not slots.rebuild_open(nonce=second)
        assert slots.rebuild_open(nonce=first)
        assert slots.fleet_count() == 0

    @pytest.mark.parametrize("how", ["stood still", "flushed", "restarted"])
    def test_an_overtaken_rebuilder_can_write_open_and_remove_nothing(self, valkey: redis.Redis, how: str) -> None:
        valkey.flushdb()
        slow, quick, lease = uuid.uuid4(), uuid.uuid4(), a_lease()
        assert slots.rebuild_begin(nonce=slow)
        if how == "stood still":
            valkey.delete(keys.rebuild())
        elif how == "flushed":
            valkey.flushdb()
        else:
            valkey.set(keys.rebuild(), f"{'0' * 40} {slow}", px=5000)
        assert not slots.rebuild_write(nonce=slow, holders=[held(a_lease())], lease_seconds=LEASE)
        assert slots.rebuild_begin(nonce=quick)
        assert slots.rebuild_write(nonce=quick, holders=[held(lease)], lease_seconds=LEASE)
        assert not slots._cleared(slow, [keys.holders("ada")])
        assert not slots.rebuild_open(nonce=slow)
        assert slots.rebuild_open(nonce=quick)
        assert not slots._cleared(quick, [keys.holders("ada")])
        assert [h.token for h in slots.state("ada").holders] == [lease.token]

    def test_versions_go_on_growing_and_every_agent_is_announced(self, valkey: redis.Redis, until: Callable[..., object]) -> None:
        for lose in (lambda: restart(valkey), valkey.flushdb):
            slots.release(lease=taken())
            before = slots.state("ada").version
            heard = subscriber(valkey)
            lose()
            rebuild(held(a_lease()))
            assert slots.state("ada").version > before
            assert until(lambda heard=heard: heard.get_message()) == hint("ada", slots.state("ada").version)
            heard.close()

    @pytest.mark.flows
    def test_ten_thousand_holders_are_back_within_five_seconds(self, valkey: redis.Redis) -> None:
        holders = [held(a_lease(f"agent-{n % 1000}", number=n // 1000 + 1)) for n in range(10_000)]
        rebuild_from_nothing(valkey, holders)
        restart(valkey)
        began = busy_seconds(valkey)
        rebuild(*holders)
        assert busy_seconds(valkey) - began < 5
        assert slots.fleet_count() == 10_000
        assert set(slots.states([f"agent-{n}" for n in range(1000)]).values()) != set()


def busy_seconds(valkey: redis.Redis) -> float:
    """Processor time of this process and the store: a machine busy with other things must not fail a test."""
    cpu = valkey.info("cpu")
    return time.process_time() + cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def rebuild_from_nothing(valkey: redis.Redis, holders: list[slots.Held]) -> None:
    valkey.flushdb()
    rebuild(*holders)


class TestReads:
    def test_counts_of_many_agents_take_one_round_trip(self, valkey: redis.Redis) -> None:
        names = [f"agent-{n}" for n in range(1000)]
        for name in names[:20]:
            taken(name)
        before = valkey.info("stats")["total_commands_processed"]
        evals = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
        counts = slots.states(names)
        assert valkey.info("commandstats")["cmdstat_evalsha"]["calls"] - evals == 1
        assert valkey.info("stats")["total_commands_processed"] > before
        assert list(counts) == names
        assert [count.active for count in counts.values()] == [1] * 20 + [0] * 980

    def test_state_lists_holders_by_number(self) -> None:
        leases = [taken() for _ in range(3)]
        state = slots.state("ada")
        assert (state.name, [h.execution_id for h in state.holders]) == ("ada", [lease.execution_id for lease in leases])
        assert state.version == slots.states(["ada"])["ada"].version

    def test_a_preview_is_cut_and_any_text_will_do(self) -> None:
        take(a_lease(), preview="ü" * 200)
        take(a_lease(), preview="\ud800 broken")
        assert [h.message_preview for h in slots.state("ada").holders] == ["ü" * 100, "? broken"]

    def test_nobody_there_is_empty(self) -> None:
        assert slots.state("nobody").holders == []
        assert slots.states(["nobody"]) == {"nobody": slots.AgentCount(active=0, lost=0, version=0)}
        assert slots.states([]) == {}
        assert slots.holders_of_fleet() == []


class TestVersions:
    def test_every_change_steps_the_version_and_publishes_it(self, valkey: redis.Redis, until: Callable[..., object]) -> None:
        heard, seen = subscriber(valkey), [slots.state("ada").version]
        first, second = a_lease(), a_lease()
        for change in (
            lambda: take(first),
            lambda: renew(first),
            lambda: hand(first, second),
            lambda: slots.release(lease=second),
            lambda: slots.step_version(["ada"]),
        ):
            change()
            seen.append(slots.state("ada").version)
            assert until(heard.get_message) == hint("ada", seen[-1])
        assert seen == sorted(set(seen))
        heard.close()

    def test_a_version_ahead_of_the_clock_still_grows(self, valkey: redis.Redis) -> None:
        ahead = 4_000_000_000_000_000
        valkey.hset(keys.versions(), "ada", ahead)
        slots.step_version(["ada", "bob"])
        assert slots.states(["ada"])["ada"].version == ahead + 1

    def test_they_step_while_a_rebuild_is_due(self, valkey: redis.Redis) -> None:
        valkey.flushdb()
        slots.step_version(["ada"])
        assert int(valkey.hget(keys.versions(), "ada")) > 0


class TestStore:
    def test_one_that_can_not_be_reached_is_unavailable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        dead = redis.Redis(port=free_port(), socket_connect_timeout=1, retry=None)
        monkeypatch.setattr(core_redis, "client", lambda: dead)
        monkeypatch.setattr(slots, "client", lambda: dead)
        monkeypatch.setattr(
            slots, "SCRIPTS", {n: core_redis.Script(s.path, prelude=slots.LUA / "common.lua") for n, s in slots.SCRIPTS.items()}
        )
        lease = a_lease()
        for ask in (
            lambda: take(lease),
            lambda: slots.release(lease=lease),
            lambda: hand(lease, a_lease()),
            lambda: renew(lease),
            lambda: slots.reclaim(lease_seconds=LEASE),
            lambda: slots.rebuild_begin(nonce=uuid.uuid4()),
            lambda: slots.state("ada"),
            lambda: slots.states(["ada"]),
            slots.fleet_count,
            slots.holders_of_fleet,
            lambda: slots.step_version(["ada"]),
        ):
            slots._Reach.lost = False
            with pytest.raises(SlotsUnavailable) as refusal:
                ask()
            assert isinstance(refusal.value.__cause__, redis.RedisError)
            assert slots._Reach.lost

    def test_one_that_forgot_the_scripts_is_taught_them_again(self, valkey: redis.Redis) -> None:
        lease = taken()
        valkey.script_flush()
        assert slots.renew(leases=[lease], lease_seconds=LEASE) == [RenewOutcome.OK]
        valkey.script_flush()
        assert slots.release(lease=lease) == ReleaseOutcome.RELEASED


class TestFiles:
    def test_each_script_names_its_keys_arguments_codes_and_invariant(self) -> None:
        for script in slots.SCRIPTS.values():
            header = script.path.read_text().split("\nlocal ")[0]
            assert all(word in header for word in ("-- KEYS", "-- ARGV", "-- Returns", "-- Invariant:")), script.name

    def test_lua_and_python_agree_on_the_hard_limit(self) -> None:
        assert f"local HARD_LIMIT_MARGIN = {MARGIN}\n" in (slots.LUA / "common.lua").read_text()


def subscriber(valkey: redis.Redis) -> redis.client.PubSub:
    heard = valkey.pubsub(ignore_subscribe_messages=True)
    heard.subscribe(keys.hints())
    while heard.get_message(timeout=1) is None and not heard.subscribed:
        pass
    return heard


def hint(name: str, version: int) -> dict[str, object]:
    return {"type": "message", "pattern": None, "channel": keys.hints().encode(), "data": f"{name} {version}".encode()}
