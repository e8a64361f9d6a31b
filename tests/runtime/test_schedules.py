"""Schedules: made, changed, run and ended over REST, and fired by housekeeping, each due time once whatever happens in between."""

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backlog import selectors as rows
from backlog.models import Execution, Status
from capacity.errors import SlotsUnavailable
from fleet import lifecycle
from fleet.models import AuditEntry, FleetSettings, OnFull, Share
from fleet.principals import Principal
from runtime import housekeeping
from runtime.models import Firing, FiringOutcome, Schedule
from runtime.services import agents, controls, firing, retention, schedules, submit

HOURLY = {"name": "hourly", "message": "look again", "interval_seconds": 3600}
DAILY = {"name": "daily", "message": "sum up", "cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"}

FIVE = "cron must be five fields (minute, hour, day of month, month, day of week) that come due, such as '0 9 * * 1-5'"
ZONE = "timezone must be a name of the IANA time zone database, such as Europe/Berlin"


@pytest.fixture
def at(api, owner, agent):
    """`at(method, path, **body)`: the answer of the agent's `schedules/`, to its owner unless `by` says otherwise."""

    def ask(method, path="", *, by=owner, to=agent, **body):
        return getattr(api(by), method)(f"/api/agents/{to.name}/schedules/{path}", body or None, format="json")

    return ask


@pytest.fixture
def make_schedule(owner, agent, valkey):
    """`make_schedule(due=-1, agent=…, **values)`: a schedule that came due so many seconds ago."""

    def make(*, due=-1.0, to=None, **values):
        to = to or agent
        made = schedules.create_schedule(
            principal=Principal.of_user(owner), agent_name=to.name, values=HOURLY | {"name": f"s-{uuid.uuid4().hex[:6]}"} | values
        )
        return come_due(made, due)

    return make


def come_due(schedule, seconds=-1.0):
    """The schedule as it would be then: due so many seconds from now."""
    due = rows.database_now().replace(microsecond=0) + timedelta(seconds=seconds)
    Schedule.objects.filter(pk=schedule.pk).update(next_due_at=due)
    return Schedule.objects.get(pk=schedule.pk)


def told(answer):
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


def outcomes():
    return list(Firing.objects.order_by("due_at").values_list("outcome", "reason"))


# -- Over REST ---------------------------------------------------------------------------------------------------------
def test_a_schedule_is_made_read_and_listed(at, agent):
    answer = at("post", **DAILY)
    body = answer.json()
    row = Schedule.objects.get()
    assert (answer.status_code, answer["Location"]) == (201, f"/api/agents/{agent.name}/schedules/{row.pk}/")
    assert body == {
        "id": str(row.pk), "agent_name": agent.name, **DAILY, "interval_seconds": None, "enabled": True, "timeout_seconds": None,
        "made_by": "olga", "created_at": body["created_at"], "next_run_at": body["next_run_at"], "last_firing": None,
    }  # fmt: skip
    assert row.next_due_at.hour in {7, 8}
    assert rows.database_now() < row.next_due_at < rows.database_now() + timedelta(days=4)
    assert at("get", f"{row.pk}/").json() == body
    assert at("get").json() == {"results": [body], "next": None, "previous": None}


def test_an_interval_is_counted_from_now(at):
    body = at("post", **HOURLY, enabled=True).json()
    row = Schedule.objects.get()
    assert row.next_due_at == row.anchor_at + timedelta(hours=1)
    assert abs(row.anchor_at - rows.database_now()) < timedelta(seconds=60)
    assert (body["cron"], body["interval_seconds"], body["timezone"]) == (None, 3600, "UTC")


def test_a_disabled_one_never_comes_due_and_an_enabled_one_in_the_future(at, make_schedule):
    assert at("post", **DAILY, enabled=False).json()["next_run_at"] is None
    schedule = make_schedule(due=-7200)
    assert at("patch", f"{schedule.pk}/", enabled=False).json()["next_run_at"] is None
    firing.fire_due()
    assert not Firing.objects.exists()
    assert at("patch", f"{schedule.pk}/", enabled=True).status_code == 200
    again = Schedule.objects.get(pk=schedule.pk)
    assert again.next_due_at > rows.database_now()
    assert (again.next_due_at - again.anchor_at) % timedelta(hours=1) == timedelta(), "on the grid that it had"


def test_a_change_is_merged_and_one_timing_replaces_the_other(at):
    path = f"{at('post', **HOURLY).json()['id']}/"
    body = at("patch", path, cron="30 2 * * *", timezone="America/New_York").json()
    assert (body["cron"], body["interval_seconds"], body["timezone"], body["message"]) == (
        "30 2 * * *",
        None,
        "America/New_York",
        "look again",
    )
    body = at("patch", path, interval_seconds=60, timeout_seconds=7200).json()
    assert (body["cron"], body["interval_seconds"], body["timeout_seconds"]) == (None, 60, 7200)
    assert at("patch", path, timeout_seconds=None).json()["timeout_seconds"] is None
    due = Schedule.objects.get().next_due_at
    assert at("patch", path, message="another").json()["message"] == "another"
    assert Schedule.objects.get().next_due_at == due
    assert at("patch", path, interval_seconds=None, cron="0 0 1 1 *").json()["cron"] == "0 0 1 1 *"


def test_every_change_leaves_an_audit_entry(at, agent):
    path = f"{at('post', **HOURLY).json()['id']}/"
    at("patch", path, message="m" * 1000, enabled=False)
    at("patch", path, enabled=False)
    at("delete", path)
    made, changed, deleted = AuditEntry.objects.filter(agent=agent).order_by("pk")
    assert [entry.action for entry in (made, changed, deleted)] == ["schedule_created", "schedule_changed", "schedule_deleted"]
    assert {entry.actor_name for entry in (made, changed, deleted)} == {"olga"}
    same = {"id": path[:-1]}
    assert made.after == same | HOURLY | {"cron": "", "timezone": "UTC", "enabled": True, "timeout_seconds": None}
    assert changed.before == same | {"message": "look again", "enabled": True}
    assert changed.after == same | {"message": "m" * schedules.AUDITED_CHARACTERS, "enabled": False}
    assert (deleted.before["name"], deleted.after) == ("hourly", None)


def test_a_name_is_there_once(at, make_agent):
    at("post", **HOURLY)
    other = at("post", **DAILY).json()
    for answer in (at("post", **HOURLY), at("patch", f"{other['id']}/", name="hourly")):
        assert told(answer) == (409, "schedule_exists", "This agent has a schedule 'hourly' already")
    assert at("post", to=make_agent(), **HOURLY).status_code == 201


def test_what_is_not_there_or_anothers_is_not_found(at, make_agent, make_schedule):
    others = make_schedule(to=make_agent())
    for path in (f"{others.pk}/", f"{uuid.uuid4()}/"):
        answers = [
            at("get", path),
            at("patch", path, enabled=False),
            at("delete", path),
            at("post", f"{path}run/"),
            at("get", f"{path}firings/"),
        ]
        assert {told(answer) for answer in answers} == {(404, "schedule_not_found", "Schedule not found")}
    assert at("get", "nonsense/").json()["code"] == "not_found"
    assert Schedule.objects.count() == 1


def test_only_its_owner_changes_it_and_whoever_reads_the_agent_reads_it(at, agent, make_key, make_schedule, owner, stranger, superuser):
    friend = type(owner).objects.create_user("frida")
    Share.objects.create(agent=agent, user=friend)
    path = f"{make_schedule(due=60).pk}/"
    for who, read, write in [
        (friend, 200, "owner_required"),
        (stranger, 403, "access_denied"),
        (make_key("agent", agent=agent), 200, "person_required"),
        (make_key("system", owner=superuser), 200, "person_required"),
    ]:
        reads = [at("get", by=who), at("get", path, by=who), at("get", f"{path}firings/", by=who)]
        assert {answer.status_code for answer in reads} == {read}
        # Whoever may not is told so whatever the body holds.
        writes = [
            at("post", by=who, nonsense=1),
            at("patch", path, by=who, nonsense=1),
            at("delete", path, by=who),
            at("post", f"{path}run/", by=who),
        ]
        assert {(answer.status_code, answer.json()["code"]) for answer in writes} == {(403, write)}
    assert at("get", by=None).status_code == 401
    assert at("patch", path, by=superuser, message="theirs now").json()["made_by"] == "root"


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        ({}, "/cron", "Exactly one of cron and interval_seconds is needed"),
        ({"cron": None}, "/cron", "Exactly one of cron and interval_seconds is needed"),
        ({"cron": "* * * * *", "interval_seconds": 60}, "/cron", "Exactly one of cron and interval_seconds is needed"),
        ({"cron": "* * * *"}, "/cron", FIVE),
        ({"cron": "0 0 30 2 *"}, "/cron", FIVE),
        ({"cron": ""}, "/cron", "cron must be text of 1 to 100 characters"),
        ({"cron": "*" * 101}, "/cron", "cron must be text of 1 to 100 characters"),
        ({"cron": 5}, "/cron", "cron must be text of 1 to 100 characters"),
        ({"interval_seconds": 9}, "/interval_seconds", "interval_seconds must be an integer between 10 and 31622400"),
        ({"interval_seconds": 60.0}, "/interval_seconds", "interval_seconds must be an integer between 10 and 31622400"),
        ({"interval_seconds": 10**400}, "/interval_seconds", "interval_seconds must be an integer between 10 and 31622400"),
        ({"interval_seconds": 60, "timezone": "../../etc/passwd"}, "/timezone", ZONE),
        ({"interval_seconds": 60, "timezone": "Europe"}, "/timezone", ZONE),
        ({"interval_seconds": 60, "timezone": None}, "/timezone", "timezone must be text of 1 to 64 characters"),
        ({"interval_seconds": 60, "enabled": "true"}, "/enabled", "enabled must be true or false"),
        ({"interval_seconds": 60, "timeout_seconds": 7201}, "/timeout_seconds", "timeout_seconds must be an integer between 1 and 7200"),
        ({"interval_seconds": 60, "message": " \n"}, "/message", "message must not be blank"),
        ({"interval_seconds": 60, "name": "n" * 101}, "/name", "name must be text of 1 to 100 characters"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(at, body, pointer, detail):
    answer = at("post", **{"name": "n", "message": "m"} | body)
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert not Schedule.objects.exists()


def test_what_no_schedule_can_be_is_refused_and_never_breaks(at, api, owner, agent):
    path = f"{at('post', **HOURLY).json()['id']}/"
    assert told(at("post", **HOURLY, nmae="x"))[:2] == (400, "unknown_field")
    assert told(at("post", message="m", interval_seconds=60)) == (400, "required", "name is required")
    assert told(at("get", "?colour=red"))[:2] == (400, "unknown_parameter")
    assert told(at("get", f"{path}firings/?cursor=x"))[:2] == (400, "invalid")
    for body in (
        "[]",
        "{",
        "null",
        "[" * 100_000,
        '{"cron": "\\ud800 * * * *"}',
        '{"interval_seconds": NaN}',
        '{"cron": "\\u0000 * * * *"}',
    ):
        for method in ("post", "patch"):
            target = f"/api/agents/{agent.name}/schedules/{path if method == 'patch' else ''}"
            assert api(owner).generic(method.upper(), target, body, content_type="application/json").status_code == 400
    assert at("patch", path, interval_seconds=None).status_code == 400
    assert Schedule.objects.get().interval_seconds == 3600


def test_run_now_submits_as_whoever_asks_and_leaves_the_next_time_as_it_is(at, make_schedule, agent, superuser):
    schedule = make_schedule(due=1800, timeout_seconds=7000)
    answer = at("post", f"{schedule.pk}/run/", by=superuser)
    row = Execution.objects.get()
    assert answer.status_code == 202
    assert answer["Location"] == f"/api/executions/{row.pk}/"
    assert answer.json() == {"status": "accepted", "execution_id": str(row.pk), "agent_name": agent.name, "async_mode": True}
    assert (row.triggered_by, row.source_name, row.timeout_seconds, row.message) == ("schedule", "root", 7000, "look again")
    assert row.metadata["schedule"] == {"id": str(schedule.pk), "name": schedule.name, "due_at": None}
    assert Schedule.objects.get() == schedule
    assert not Firing.objects.exists()


def test_run_now_waits_in_line_and_is_refused_when_that_is_full(at, make_agent, make_schedule):
    single = make_agent(limit=1, depth=1)
    path = f"{make_schedule(to=single, due=60).pk}/run/"
    assert [at("post", path, to=single).json().get("queue_position") for _ in range(2)] == [None, 1]
    answer = at("post", path, to=single)
    assert (answer.status_code, answer.json()["code"]) == (429, "backlog_full")
    assert int(answer["Retry-After"]) >= 1
    assert Execution.objects.count() == 2


# -- Fired -------------------------------------------------------------------------------------------------------------
def test_what_has_come_due_is_fired_once_as_whoever_made_it(at, make_schedule, agent):
    schedule = make_schedule(timeout_seconds=5000)
    for _ in range(3):
        housekeeping.sweep()
    row, fired = Execution.objects.get(), Firing.objects.get()
    assert (row.pk, row.status, row.triggered_by) == (fired.execution_id, Status.RUNNING, "schedule")
    assert (row.source_kind, row.source_name, row.submitted_by, row.timeout_seconds) == ("user", "olga", schedule.made_by, 5000)
    due_at = f"{schedule.next_due_at:%Y-%m-%dT%H:%M:%SZ}"
    assert row.metadata == {"schedule": {"id": str(schedule.pk), "name": schedule.name, "due_at": due_at}}
    body = at("get", f"{schedule.pk}/").json()
    shown = {
        "due_at": due_at,
        "outcome": "submitted",
        "reason": None,
        "skipped": 0,
        "execution_id": str(row.pk),
        "execution_status": "running",
    }
    assert body["last_firing"] == shown
    assert at("get", f"{schedule.pk}/firings/").json() == {"results": [shown], "next": None, "previous": None}
    assert at("get").json()["results"] == [body]
    again = Schedule.objects.get()
    assert again.next_due_at > rows.database_now()
    assert (again.next_due_at - again.anchor_at) % timedelta(hours=1) == timedelta()


def test_the_hosts_own_clock_decides_nothing(make_schedule, monkeypatch):
    make_schedule(due=30)
    late = make_schedule(due=-5)
    monkeypatch.setattr(timezone, "now", lambda: rows.database_now() + timedelta(hours=1))
    firing.fire_due()
    assert Firing.objects.get().schedule_id == late.pk
    monkeypatch.setattr(timezone, "now", lambda: rows.database_now() - timedelta(days=400))
    later = make_schedule(due=-5)
    firing.fire_due()
    assert set(Firing.objects.values_list("schedule_id", flat=True)) == {late.pk, later.pk}


def test_after_a_downtime_the_latest_due_time_is_made_up_for_and_the_others_are_told(at, make_schedule):
    schedule = make_schedule(interval_seconds=60)
    Schedule.objects.update(anchor_at=F("anchor_at") - timedelta(hours=2), next_due_at=F("anchor_at") - timedelta(hours=1))
    housekeeping.sweep()
    fired = Firing.objects.get()
    assert fired.skipped in {59, 60}
    assert timedelta() <= rows.database_now() - fired.due_at < timedelta(seconds=61)
    assert Execution.objects.count() == 1
    assert at("get", f"{schedule.pk}/").json()["last_firing"]["skipped"] == fired.skipped


def test_an_idle_pass_costs_one_query(make_schedule):
    make_schedule(due=3600)
    make_schedule(due=-1)
    firing.fire_due()
    with CaptureQueriesContext(connection) as queries:
        firing.fire_due()
    assert len(queries) == 1


def test_one_that_can_not_be_timed_any_more_holds_up_no_other(make_schedule):
    broken, sound = make_schedule(due=-5, cron="0 9 * * *", interval_seconds=None), make_schedule()
    Schedule.objects.filter(pk=broken.pk).update(timezone="Atlantis/Capital")
    firing.fire_due()
    firing.fire_due()
    assert dict(Firing.objects.values_list("schedule_id", "outcome")) == dict.fromkeys((broken.pk, sound.pk), FiringOutcome.SUBMITTED)
    assert Schedule.objects.get(pk=broken.pk).next_due_at is None


# -- In the way --------------------------------------------------------------------------------------------------------
def test_a_paused_agent_takes_it_in_line(make_agent, make_schedule):
    make_schedule(to=make_agent(paused=True))
    firing.fire_due()
    assert Execution.objects.get().status == Status.QUEUED
    assert outcomes() == [(FiringOutcome.SUBMITTED, "")]


def test_a_full_line_is_tried_again_until_there_is_room(make_agent, make_schedule, owner, carry):
    single = make_agent(limit=1, depth=0)
    make_schedule(to=single)
    first = schedules.run_schedule(principal=Principal.of_user(owner), agent_name=single.name, schedule_id=Schedule.objects.get().pk)
    for _ in range(2):
        firing.fire_due()
        assert outcomes() == [(FiringOutcome.PENDING, "backlog_full")]
    assert Execution.objects.count() == 1
    carry(first.execution_id)
    firing.fire_due()
    assert outcomes() == [(FiringOutcome.SUBMITTED, "")]
    assert Execution.objects.filter(pk=Firing.objects.get().execution_id).exists()


def test_what_found_no_room_until_the_next_due_time_is_recorded_as_missed(at, make_agent, make_schedule, owner):
    single = make_agent(limit=1, depth=0)
    schedule = make_schedule(to=single, due=-3)
    schedules.run_schedule(principal=Principal.of_user(owner), agent_name=single.name, schedule_id=schedule.pk)
    firing.fire_due()
    come_due(schedule, -1)
    firing.fire_due()
    assert outcomes() == [(FiringOutcome.MISSED, "backlog_full"), (FiringOutcome.PENDING, "backlog_full")]
    listed = at("get", f"{schedule.pk}/firings/", to=single).json()["results"]
    assert [(one["outcome"], one["reason"], one["execution_id"]) for one in listed] == [
        ("pending", "backlog_full", None), ("missed", "backlog_full", None),
    ]  # fmt: skip
    assert at("get", f"{schedule.pk}/", to=single).json()["last_firing"] == listed[0]


def test_a_full_line_of_one_agent_holds_up_no_other(make_agent, make_schedule, owner):
    full = make_agent(limit=1, depth=0)
    blocked = [make_schedule(to=full, due=-9) for _ in range(3)]
    schedules.run_schedule(principal=Principal.of_user(owner), agent_name=full.name, schedule_id=blocked[0].pk)
    free = make_schedule()
    firing.fire_due()
    assert Firing.objects.get(schedule=free).outcome == FiringOutcome.SUBMITTED
    assert Counter(Firing.objects.filter(schedule__in=blocked).values_list("outcome", flat=True)) == {FiringOutcome.PENDING: 3}


def test_a_full_fleet_that_refuses_is_tried_again(make_agent, make_schedule, owner):
    FleetSettings.objects.filter(pk=1).update(max_concurrent_tasks=1, on_full=OnFull.REJECT)
    other = make_schedule(to=make_agent(), due=60)
    schedules.run_schedule(principal=Principal.of_user(owner), agent_name=other.agent.name, schedule_id=other.pk)
    make_schedule()
    firing.fire_due()
    assert outcomes() == [(FiringOutcome.PENDING, "fleet_at_capacity")]
    FleetSettings.objects.filter(pk=1).update(max_concurrent_tasks=None)
    firing.fire_due()
    assert outcomes() == [(FiringOutcome.SUBMITTED, "")]


def test_without_the_slot_store_it_comes_with_the_pass_that_finds_it_again(make_schedule, store_out_of_reach):
    make_schedule()
    store_out_of_reach(True)
    with pytest.raises(SlotsUnavailable):
        firing.fire_due()
    assert outcomes() == [(FiringOutcome.PENDING, "")]
    assert not Execution.objects.exists()
    store_out_of_reach(False)
    firing.fire_due()
    assert Execution.objects.get().pk == Firing.objects.get().execution_id


@pytest.mark.parametrize("lost", ["inactive", "deleted", "not the owner's any more"])
def test_whoever_lost_access_is_refused_with_the_reason(make_schedule, agent, owner, stranger, superuser, lost):
    made = make_schedule()
    schedules.change_schedule(
        principal=Principal.of_user(superuser), agent_name=agent.name, schedule_id=made.pk, changes={"message": "mine"}
    )
    if lost == "inactive":
        type(owner).objects.filter(pk=superuser.pk).update(is_active=False)
    elif lost == "deleted":
        superuser.delete()
    else:
        type(owner).objects.filter(pk=superuser.pk).update(is_superuser=False)
    for _ in range(2):
        firing.fire_due()
    assert outcomes() == [(FiringOutcome.REFUSED, "access_lost")]
    assert not Execution.objects.exists()
    assert Schedule.objects.get().next_due_at > rows.database_now()


def test_handed_on_it_is_refused_until_the_new_owner_takes_it_over(at, make_schedule, agent, owner, stranger):
    schedule = make_schedule()
    lifecycle.change_agent(principal=Principal.of_user(owner), agent=agent, changes={"owner": "sten"})
    firing.fire_due()
    assert outcomes() == [(FiringOutcome.REFUSED, "access_lost")]
    at("patch", f"{schedule.pk}/", by=stranger, message="mine now")
    come_due(schedule, 0)
    firing.fire_due()
    assert Execution.objects.get().source_name == "sten"


def test_a_deleted_agents_schedules_end_with_it(make_schedule, agent, owner, make_agent):
    make_schedule(), make_schedule(due=60)
    principal = Principal.of_user(owner)
    # As a crash between the deletion and what follows would leave it.
    lifecycle.delete_agent(principal=principal, agent=agent)
    make_agent(name=agent.name)
    firing.fire_due()
    assert not Firing.objects.exists()
    agents.finish_deletions()
    assert not Schedule.objects.exists()
    other = make_agent()
    make_schedule(to=other)
    agents.delete_agent(principal=principal, name=other.name)
    assert not Schedule.objects.exists()
    assert not Execution.objects.exists()


def test_disabling_gives_up_what_is_pending(at, make_agent, make_schedule, owner):
    single = make_agent(limit=1, depth=0)
    schedule = make_schedule(to=single)
    schedules.run_schedule(principal=Principal.of_user(owner), agent_name=single.name, schedule_id=schedule.pk)
    firing.fire_due()
    at("patch", f"{schedule.pk}/", to=single, enabled=False)
    assert outcomes() == [(FiringOutcome.MISSED, "backlog_full")]
    controls.set_limit(principal=Principal.of_user(owner), name=single.name, changes={"max_parallel_tasks": 3})
    firing.fire_due()
    assert Execution.objects.count() == 1


def test_one_ended_or_handed_to_another_while_the_pass_is_under_way_is_not_fired_as_it_was(
    make_schedule, monkeypatch, agent, owner, superuser
):
    first, disabled, deleted, changed = (make_schedule(due=-due) for due in (9, 8, 7, 6))
    principal, submit_as = Principal.of_user(owner), submit.submit_as

    def meanwhile(**asked):
        monkeypatch.setattr(submit, "submit_as", submit_as)
        named = {"principal": principal, "agent_name": agent.name}
        schedules.change_schedule(**named, schedule_id=disabled.pk, changes={"enabled": False})
        schedules.delete_schedule(**named, schedule_id=deleted.pk)
        named["principal"] = Principal.of_user(superuser)
        schedules.change_schedule(**named, schedule_id=changed.pk, changes={"message": "as it is now"})
        return submit_as(**asked)

    monkeypatch.setattr(submit, "submit_as", meanwhile)
    firing.fire_due()
    assert dict(Firing.objects.values_list("schedule", "outcome")) == {
        first.pk: FiringOutcome.SUBMITTED, disabled.pk: FiringOutcome.MISSED, changed.pk: FiringOutcome.SUBMITTED,
    }  # fmt: skip
    made = Execution.objects.order_by("created_at", "id").values_list("message", "source_name")
    assert list(made) == [("look again", "olga"), ("as it is now", "root")]


# -- Crashes, and two at once ------------------------------------------------------------------------------------------
class Crashed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("where", ["before the submit", "before its row", "after its row", "before it is said"])
def test_a_crash_anywhere_loses_and_doubles_nothing(make_schedule, monkeypatch, where):
    schedule = make_schedule()

    def crash(*_args, **_kwargs):
        raise Crashed

    with monkeypatch.context() as patched:
        if where == "before the submit":
            patched.setattr(submit, "submit_as", crash)
        elif where == "before its row":
            patched.setattr("backlog.services.insert_running", crash)
        elif where == "after its row":
            patched.setattr("runtime.dispatch.start", crash)
        else:
            patched.setattr(firing, "_tell", crash)
            patched.setattr(Firing.objects, "filter", crash_on_update(Firing.objects.filter))
        with pytest.raises(Crashed):
            firing.fire_due()
    [(outcome, _)] = outcomes()
    assert outcome == FiringOutcome.PENDING
    for _ in range(2):
        firing.fire_due()
    row = Execution.objects.get()
    fired = Firing.objects.get()
    assert (row.pk, fired.outcome) == (fired.execution_id, FiringOutcome.SUBMITTED)
    assert Schedule.objects.get().next_due_at > schedule.next_due_at


def crash_on_update(filtered):
    """`Firing.objects.filter`, whose rows can't be written any more."""

    def rows_of(*args, **kwargs):
        found = filtered(*args, **kwargs)
        found.update = lambda **_: (_ for _ in ()).throw(Crashed)
        return found

    return rows_of


def test_one_whose_execution_was_made_by_a_process_that_died_is_no_missed_one(make_schedule, at, monkeypatch):
    schedule = make_schedule(due=-3)
    with monkeypatch.context() as patched:
        patched.setattr("runtime.dispatch.start", lambda *_: (_ for _ in ()).throw(Crashed))
        with pytest.raises(Crashed):
            firing.fire_due()
    come_due(schedule, -1)
    firing.fire_due()
    assert outcomes() == [(FiringOutcome.SUBMITTED, "")] * 2
    assert Execution.objects.count() == 2


def test_one_whose_execution_was_made_is_not_refused_afterwards(make_schedule, owner, monkeypatch):
    make_schedule()
    with monkeypatch.context() as patched:
        patched.setattr("runtime.dispatch.start", lambda *_: (_ for _ in ()).throw(Crashed))
        with pytest.raises(Crashed):
            firing.fire_due()
    type(owner).objects.filter(pk=owner.pk).update(is_active=False)
    firing.fire_due()
    assert outcomes() == [(FiringOutcome.SUBMITTED, "")]


@pytest.mark.django_db(transaction=True)
def test_of_eight_at_once_each_due_time_is_fired_by_one(make_schedule, make_agent):
    due = [make_schedule(to=make_agent(limit=1)) for _ in range(5)]
    gate = threading.Barrier(8)

    def one(_):
        try:
            gate.wait(10)
            firing.fire_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(one, range(8)))
    assert Firing.objects.count() == len(due)
    assert set(Firing.objects.values_list("outcome", flat=True)) == {FiringOutcome.SUBMITTED}
    assert set(Execution.objects.values_list("pk", flat=True)) == set(Firing.objects.values_list("execution_id", flat=True))
    assert {schedule.next_due_at > rows.database_now() for schedule in Schedule.objects.all()} == {True}


@pytest.mark.django_db(transaction=True)
def test_an_agent_deleted_while_its_schedule_comes_due_is_gone_with_it(make_schedule, agent, owner, api, monkeypatch):
    schedule = make_schedule()
    recorded, deleting = threading.Event(), threading.Event()
    get_or_create, end_schedules = Firing.objects.get_or_create, schedules.end_schedules

    def record(**values):
        found = get_or_create(**values)
        recorded.set()
        assert deleting.wait(10)
        # Long enough for the deletion to have looked for firings: this one is not committed yet.
        threading.Event().wait(0.3)
        return found

    def end(agent):
        deleting.set()
        end_schedules(agent)

    def take_up():
        try:
            firing._take_up(schedule.pk)
        finally:
            connections.close_all()

    monkeypatch.setattr(Firing.objects, "get_or_create", record)
    monkeypatch.setattr(schedules, "end_schedules", end)
    with ThreadPoolExecutor(max_workers=1) as pool:
        taken_up = pool.submit(take_up)
        assert recorded.wait(10)
        if not connection.features.has_select_for_update:
            deleting.set()  # there is one writer at a time
        answer = api(owner).delete(f"/api/agents/{agent.name}/")
        taken_up.result(timeout=10)
    assert answer.status_code == 204
    assert not Schedule.objects.exists()
    assert not Firing.objects.exists()


# -- Old ones ----------------------------------------------------------------------------------------------------------
def test_old_firings_are_forgotten_but_for_the_last_of_each(make_schedule):
    schedules_ = [make_schedule(due=60), make_schedule(due=60)]
    long_ago = rows.database_now() - timedelta(days=400)
    for schedule in schedules_:
        for days in range(3):
            Firing.objects.create(schedule=schedule, due_at=long_ago + timedelta(days=days), outcome=FiringOutcome.SUBMITTED)
    Firing.objects.create(schedule=schedules_[0], due_at=rows.database_now(), outcome=FiringOutcome.MISSED)
    assert retention.forget_old()
    assert Counter(Firing.objects.values_list("schedule_id", flat=True)) == {schedules_[0].pk: 1, schedules_[1].pk: 1}
