"""Schedules in the admin: owners see, make, change, run and end their own."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from backlog.models import Execution
from capacity.manager import CapacityManager
from fleet.models import AuditEntry
from fleet.principals import Principal
from runtime.models import Firing, FiringOutcome, Schedule
from runtime.services import schedules

pytestmark = pytest.mark.django_db
LIST = "/admin/runtime/schedule/"


@pytest.fixture
def browse(valkey):
    """`browse(user)`: a browser in which they are signed in; the slot store is open."""
    CapacityManager().rebuild()

    def make(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def schedule(agent, owner):
    values = {"name": "nightly", "message": "sum up", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    return schedules.create_schedule(principal=Principal.of_user(owner), agent_name=agent.name, values=values)


def form(**changes):
    return {"name": "nightly", "message": "sum up", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "enabled": "on"} | changes


def test_owners_see_their_own_and_superusers_all(browse, schedule, owner, stranger, superuser, make_agent):
    make_agent(owner=stranger)  # or they could not enter at all
    Firing.objects.create(schedule=schedule, due_at=schedule.created_at, outcome=FiringOutcome.MISSED, reason="backlog_full", skipped=4)
    for user, seen in ((owner, True), (superuser, True), (stranger, False)):
        listed = browse(user).get(LIST)
        assert listed.status_code == 200
        assert ("0 3 * * * Europe/Berlin" in listed.text) is seen
        assert ("missed (backlog_full), 4 before it went by" in listed.text) is seen
        assert browse(user).get(f"{LIST}{schedule.pk}/change/").status_code == (200 if seen else 302)
    assert browse(owner).get(f"{LIST}add/").status_code == 200


def test_one_is_made_and_changed_by_the_services(browse, agent, owner):
    client = browse(owner)
    assert client.post(f"{LIST}add/", form(agent=agent.pk)).status_code == 302
    row = Schedule.objects.get()
    assert (row.agent, row.cron, row.interval_seconds, row.made_by, row.enabled) == (agent, "0 3 * * *", None, owner, True)
    assert row.next_due_at is not None
    path = f"{LIST}{row.pk}/change/"
    assert client.post(path, form(cron="", interval_seconds="60", timeout_seconds="7000")).status_code == 302
    row.refresh_from_db()
    assert (row.cron, row.interval_seconds, row.timeout_seconds) == ("", 60, 7000)
    sent = form(cron="", interval_seconds="60")
    del sent["enabled"]
    assert client.post(path, sent).status_code == 302
    row.refresh_from_db()
    assert (row.enabled, row.next_due_at, row.timeout_seconds) == (False, None, None)
    assert [entry.action for entry in AuditEntry.objects.order_by("pk")] == ["schedule_created", *["schedule_changed"] * 2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"cron": "0 3 * *"}, "cron must be five fields"),
        ({"cron": ""}, "Exactly one of cron and interval_seconds is needed"),
        ({"interval_seconds": "60"}, "Exactly one of cron and interval_seconds is needed"),
        ({"cron": "", "interval_seconds": "3"}, "interval_seconds must be an integer between 10 and 31622400"),
        ({"timezone": "../etc/passwd"}, "timezone must be a name of the IANA time zone database"),
        ({"timeout_seconds": "7201"}, "timeout_seconds must be an integer between 1 and 7200"),
        ({"message": " "}, "This field is required"),
    ],
)
def test_what_can_not_be_is_said_beside_its_field(browse, agent, owner, changes, sentence):
    answer = browse(owner).post(f"{LIST}add/", form(agent=agent.pk, **changes))
    assert answer.status_code == 200
    assert sentence in answer.text
    assert not Schedule.objects.exists()


def test_a_name_that_is_there_is_said(browse, agent, owner, schedule):
    assert "This agent has a schedule &#x27;nightly&#x27; already" in browse(owner).post(f"{LIST}add/", form(agent=agent.pk)).text


def test_somebody_elses_agent_is_not_chosen(browse, agent, stranger, make_agent):
    make_agent(owner=stranger)
    assert "Select a valid choice" in browse(stranger).post(f"{LIST}add/", form(agent=agent.pk)).text
    assert not Schedule.objects.exists()


def test_it_is_run_now(browse, owner, schedule):
    client = browse(owner)
    answer = client.post(LIST, {"action": "run_now", "_selected_action": [str(schedule.pk)]})
    row = Execution.objects.get()
    assert (row.triggered_by, row.source_name) == ("schedule", "olga")
    assert re.search(rf'<a href="/api/executions/{row.pk}/">', client.get(answer["Location"]).text)


def test_it_is_ended_alone_and_in_numbers(browse, agent, owner, schedule):
    client = browse(owner)
    Firing.objects.create(schedule=schedule, due_at=schedule.created_at)
    path = f"{LIST}{schedule.pk}/delete/"
    assert client.get(path).status_code == 200
    assert client.post(path, {"post": "yes"}).status_code == 302
    assert not Schedule.objects.exists()
    client.post(f"{LIST}add/", form(agent=agent.pk))
    both = {"action": "delete_selected", "_selected_action": [str(Schedule.objects.get().pk)], "post": "yes"}
    assert client.post(LIST, both).status_code == 302
    assert not Schedule.objects.exists()
    assert AuditEntry.objects.filter(action="schedule_deleted").count() == 2
