"""Changes of limits and the ceiling, keys, and the first owner."""

from io import StringIO
from threading import Barrier, Thread
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection

from core.errors import TrinityError
from fleet import selectors, services
from fleet.models import Agent, AuditEntry, FleetSettings
from fleet.principals import Principal

LIMIT = "max_parallel_tasks must be an integer between 1 and 10"


def change(principal: Principal, agent: Agent, expected_version: int | None = None, **changes: Any):
    return services.change_limit(principal=principal, agent=agent, changes=changes, expected_version=expected_version)


def refusal(call: Any, *args: Any, **kwargs: Any) -> tuple[str, str]:
    with pytest.raises(TrinityError) as refused:
        call(*args, **kwargs)
    return refused.value.code, refused.value.detail


class TestChangeLimit:
    @pytest.fixture
    def me(self, owner) -> Principal:
        return Principal.of_user(owner)

    def test_values_are_stored_stepped_and_audited(self, me, agent, owner):
        changed, before = change(me, agent, max_parallel_tasks=5, max_backlog_depth=50, execution_timeout_seconds=60)
        assert before == {"max_parallel_tasks": 3, "max_backlog_depth": 50, "execution_timeout_seconds": 900}
        row = Agent.objects.get(pk=agent.pk)
        for seen in (row, changed):
            assert (seen.max_parallel_tasks, seen.max_backlog_depth, seen.execution_timeout_seconds) == (5, 50, 60)
            assert (seen.settings_version, seen.changed_by) == (2, owner)
            assert seen.changed_at is not None
        entries = selectors.audit_of(agent).values_list("actor", "actor_name", "action", "before", "after")
        assert sorted(entries) == [(owner.pk, "olga", "execution_timeout_seconds", 900, 60), (owner.pk, "olga", "max_parallel_tasks", 3, 5)]

    def test_what_stands_already_changes_nothing(self, me, agent):
        changed, _ = change(me, agent, max_parallel_tasks=3)
        assert (changed.settings_version, changed.changed_at, AuditEntry.objects.count()) == (1, None, 0)

    @pytest.mark.parametrize("value", [1, 10])
    def test_the_bounds_are_within(self, value, me, agent):
        change(me, agent, max_parallel_tasks=value)
        assert Agent.objects.get(pk=agent.pk).max_parallel_tasks == value

    @pytest.mark.parametrize("value", [0, -1, 11, 3.5, 5.0, "5", True, {}, [], 10**30])
    def test_other_limits_are_refused_with_the_exact_sentence(self, value, me, agent):
        assert refusal(change, me, agent, max_parallel_tasks=value) == ("invalid", LIMIT)

    def test_null_is_a_missing_limit(self, me, agent):
        assert refusal(change, me, agent, max_parallel_tasks=None) == ("required", "max_parallel_tasks is required")

    @pytest.mark.parametrize(
        ("name", "values", "sentence"),
        [
            ("max_backlog_depth", [-1, 10_001, None, "5"], "max_backlog_depth must be an integer between 0 and 10000"),
            ("execution_timeout_seconds", [59, 7201, None, 60.0], "execution_timeout_seconds must be an integer between 60 and 7200"),
        ],
    )
    def test_other_settings_have_bounds_too(self, name, values, sentence, me, agent):
        assert {refusal(change, me, agent, **{name: value}) for value in values} == {("invalid", sentence)}

    def test_the_ceiling_bounds_it(self, me, agent):
        FleetSettings.objects.update(max_parallel_tasks_ceiling=2)
        assert refusal(change, me, agent, max_parallel_tasks=3)[1] == "max_parallel_tasks must be an integer between 1 and 2"

    def test_nothing_is_changed_where_one_value_is_wrong(self, me, agent):
        refusal(change, me, agent, max_backlog_depth=7, max_parallel_tasks=0)
        assert Agent.objects.get(pk=agent.pk).max_backlog_depth == 50

    def test_only_persons_and_owners_change_it(self, principals, agent):
        told = {
            who: refusal(change, one, agent, max_parallel_tasks=4)
            for who, one in principals.items()
            if not ("owner" in who or "super" in who)
        }
        person = ("person_required", "Only a person can do this; sign in or use your own user key")
        assert told == {
            "friend": ("owner_required", "Only owners can change capacity settings"),
            "stranger": ("access_denied", "Access denied"),
            "own agent's key": person,
            "another agent's key": person,
            "system key": person,
        }
        for value, who in enumerate(("owner", "owner's key", "superuser"), start=4):
            assert change(principals[who], agent, max_parallel_tasks=value)[0].max_parallel_tasks == value

    def test_a_lost_update_is_refused(self, me, agent):
        change(me, agent, expected_version=1, max_parallel_tasks=4)
        sentence = "The settings changed since you read them"
        assert refusal(change, me, agent, expected_version=1, max_parallel_tasks=5) == ("precondition_failed", sentence)
        assert Agent.objects.get(pk=agent.pk).max_parallel_tasks == 4

    def test_a_deleted_agent_is_gone(self, me, agent):
        Agent.objects.update(deleted_at=agent.created_at)
        assert refusal(change, me, agent, max_parallel_tasks=4)[0] == "agent_not_found"

    @pytest.mark.django_db(transaction=True)
    def test_of_changes_made_at_once_on_one_version_one_is_made(self, me, agent):
        start, outcomes = Barrier(8), []

        def run(value: int) -> None:
            start.wait()
            try:
                change(me, agent, expected_version=1, max_parallel_tasks=value)
                outcomes.append("changed")
            except TrinityError as error:
                outcomes.append(error.code)
            finally:
                connection.close()

        threads = [Thread(target=run, args=(value,)) for value in (1, 2, 4, 5, 6, 7, 8, 9)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert sorted(outcomes) == ["changed"] + ["precondition_failed"] * 7
        assert Agent.objects.get(pk=agent.pk).settings_version == 2


class TestCeiling:
    def test_superusers_set_it_and_agents_keep_theirs(self, superuser, agent):
        assert services.set_ceiling(principal=Principal.of_user(superuser), value=2).max_parallel_tasks_ceiling == 2
        assert selectors.ceiling() == 2
        row = Agent.objects.get(pk=agent.pk)
        assert (row.max_parallel_tasks, selectors.effective_limit(row, 2)) == (3, 2)
        entry = AuditEntry.objects.get()
        assert (entry.agent, entry.action, entry.before, entry.after) == (None, "max_parallel_tasks_ceiling", 10, 2)

    @pytest.mark.parametrize("value", [0, 33, -1, "5", 5.0, True, None, {}])
    def test_other_values_are_refused(self, value, superuser):
        told = refusal(services.set_ceiling, principal=Principal.of_user(superuser), value=value)
        assert told == ("invalid", "value must be an integer between 1 and 32")

    def test_nobody_else_sets_it(self, principals):
        told = {who: refusal(services.set_ceiling, principal=one, value=5)[0] for who, one in principals.items() if who != "superuser"}
        assert {who for who, code in told.items() if code == "access_denied"} == {"owner", "owner's key", "friend", "stranger"}
        assert set(told.values()) == {"access_denied", "person_required"}

    def test_a_missing_row_is_made_again_with_the_first_values(self, superuser, settings):
        settings.TRINITY_MAX_PARALLEL_TASKS_CEILING = 7
        settings.TRINITY_MAX_CONCURRENT_TASKS = 100
        FleetSettings.objects.all().delete()
        assert selectors.ceiling() == 7
        services.set_ceiling(principal=Principal.of_user(superuser), value=8)
        row = FleetSettings.objects.get()
        assert (row.max_parallel_tasks_ceiling, row.max_concurrent_tasks) == (8, 100)


class TestKeys:
    def test_who_may_have_which(self, owner, stranger, superuser, agent):
        def told(user: User, scope: str, of: Agent | None = None) -> str:
            return refusal(services.create_key, owner=user, scope=scope, name="k", agent=of)[1]

        assert told(owner, "system") == "Only superusers can have system keys"
        assert told(stranger, "agent", agent) == "Only the agent's owner can have a key for it"
        assert told(owner, "agent") == told(owner, "user", agent) == "An agent is named for a key of scope agent, and for no other"
        stranger.is_active = False
        assert told(stranger, "user") == "sten is not active"
        assert services.create_key(owner=superuser, scope="agent", name="k", agent=agent).row.agent == agent

    def test_the_command_ends_with_the_key_alone(self, api, agent):
        out = StringIO()
        call_command("create_key", "--user", "olga", "--scope", "agent", "--agent", agent.name, stdout=out, stderr=StringIO())
        key = out.getvalue().splitlines()[-1]
        assert api(key).get(f"/api/agents/{agent.name}").status_code == 200

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--user", "nobody", "--scope", "user"], "No user 'nobody'"),
            (["--user", "olga", "--scope", "agent", "--agent", "nobody"], "No agent 'nobody'"),
            (["--user", "olga", "--scope", "system"], "Only superusers can have system keys"),
            (["--user", "olga", "--scope", "admin"], "invalid choice"),
        ],
    )
    def test_the_command_says_what_is_wrong(self, arguments, sentence, owner):
        with pytest.raises(CommandError, match=sentence):
            call_command("create_key", *arguments)


class TestFirstOwner:
    def test_the_first_start_makes_one_superuser(self, db, client):
        password = services.ensure_owner()
        assert password is not None
        assert client.login(username="owner", password=password)
        assert User.objects.get().is_superuser
        assert services.ensure_owner() is None

    def test_where_there_are_users_none_is_made(self, stranger):
        assert services.ensure_owner() is None
        assert User.objects.get() == stranger
