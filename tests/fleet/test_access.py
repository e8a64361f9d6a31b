"""Who may do what, row by row of the table."""

import pytest
from django.contrib.auth.models import User
from django.db.models import F

from core.errors import TrinityError
from fleet import access, selectors
from fleet.models import Agent, Share
from fleet.principals import Principal

TABLE = [
    # who, read, submit, change, own: what it is told, None where it may
    ("owner", None, None, None, None),
    ("owner's key", None, None, None, None),
    ("superuser", None, None, None, None),
    ("friend", None, None, "Only owners can change capacity settings", "Only the agent's owner can do this"),
    ("stranger", "Access denied", "Access denied", "Access denied", "Access denied"),
    ("own agent's key", None, None, "person", "person"),
    ("another agent's key", "Access denied", "Access denied", "person", "person"),
    ("system key", None, None, "person", "person"),
]
PERSON_REQUIRED = "Only a person can do this; sign in or use your own user key"


def told(principal: Principal, name: str, verb: str) -> str | None:
    try:
        access.agent_for(principal=principal, name=name, verb=verb)
    except TrinityError as error:
        return error.detail
    return None


@pytest.mark.parametrize(("who", "read", "submit", "change", "own"), TABLE, ids=[row[0] for row in TABLE])
def test_each_kind_of_caller_may_what_the_table_says(who, read, submit, change, own, principals, agent):
    principal = principals[who]
    expected = {"read": read, "submit": submit, "change": change, "own": own}
    expected = {verb: PERSON_REQUIRED if sentence == "person" else sentence for verb, sentence in expected.items()}
    assert {verb: told(principal, agent.name, verb) for verb in access.Verb} == expected
    assert {verb: access.may(principal, verb, Agent.objects.get(pk=agent.pk)) for verb in access.Verb} == {
        verb: sentence is None for verb, sentence in expected.items()
    }


@pytest.mark.parametrize("who", [row[0] for row in TABLE])
def test_lists_hold_what_may_be_read(who, principals, agent, make_agent):
    make_agent(name="gone", deleted_at=agent.created_at)
    visible = set(selectors.agents_visible_to(principals[who]))
    assert visible == {row for row in Agent.objects.filter(deleted_at=None) if access.may(principals[who], "read", row)}


@pytest.mark.parametrize("verb", access.Verb)
def test_access_is_settled_by_one_query(verb, principals, agent, django_assert_num_queries):
    for principal in principals.values():
        needs_person = verb in ("change", "own") and not principal.is_person
        with django_assert_num_queries(0 if needs_person else 1):
            told(principal, agent.name, verb)


@pytest.mark.parametrize("name", ["nobody", "", "A", "a_b", "-a", "a-", "a" * 64, "a\0", "\N{SNOWMAN}", "a\n", "\ud800"])
def test_a_name_of_no_agent_is_not_found(name, principals):
    assert told(principals["owner"], name, "read") == "Agent not found"


def test_a_deleted_agent_is_not_found(principals, make_agent, agent):
    make_agent(name="gone", deleted_at=agent.created_at)
    assert told(principals["superuser"], "gone", "read") == "Agent not found"


@pytest.mark.parametrize("verb", ["change", "own"])
def test_a_person_is_asked_for_before_the_agent_is_looked_up(verb, principals):
    for who in ("own agent's key", "system key"):
        assert told(principals[who], "nobody", verb) == PERSON_REQUIRED


def test_an_agent_key_reaches_what_its_owner_reaches(principals, agent, make_agent, make_key, owner, stranger):
    beside = make_agent()
    shared = make_agent(owner=stranger)
    Share.objects.create(agent=shared, user=owner)
    hidden = make_agent(owner=stranger)
    key = principals["own agent's key"]
    assert [access.may(key, "submit", one) for one in (agent, beside, shared, hidden)] == [True, True, True, False]


def test_an_agent_key_keeps_its_own_agent_when_that_changes_hands(principals, agent, stranger):
    agent.owner = stranger
    agent.save()
    assert told(principals["own agent's key"], agent.name, "submit") is None


def test_one_callers_share_is_not_taken_for_anothers(principals, agent):
    seen = access.agent_for(principal=principals["friend"], name=agent.name, verb="read")
    assert not access.may(principals["stranger"], "read", seen)


def test_a_caller_can_bring_its_own_annotations(principals, agent):
    queryset = Agent.objects.annotate(twice=F("max_parallel_tasks") * 2)
    assert access.agent_for(principal=principals["owner"], name=agent.name, verb="read", queryset=queryset).twice == 6


def test_an_execution_is_cancelled_by_its_submitter_or_the_agents_owner(principals, agent, friend, make_key, owner):
    own = principals["own agent's key"]
    another_key = Principal.of_key(make_key(owner, "agent", agent=agent).row)
    friends = {"submitted_by_id": friend.pk, "submitted_key_id": None}
    keys = {"submitted_by_id": owner.pk, "submitted_key_id": own.key.pk}
    may = {who: access.may_cancel(principal, agent, **friends) for who, principal in principals.items()}
    assert [who for who, yes in may.items() if yes] == ["owner", "owner's key", "friend", "superuser"]
    assert access.may_cancel(own, agent, **keys)
    assert not access.may_cancel(another_key, agent, **keys)
    assert not access.may_cancel(principals["friend"], agent, **keys)
    assert not access.may_cancel(own, agent, submitted_by_id=owner.pk, submitted_key_id=None)


def test_callers_have_scopes_and_sources_of_their_own(principals, owner, agent):
    scopes = {who: principal.caller for who, principal in principals.items()}
    assert scopes["owner"] == scopes["owner's key"] == f"user:{owner.pk}"
    assert scopes["system key"] == f"key:{principals['system key'].key.pk}"
    assert len(set(scopes.values())) == len(scopes) - 1
    sources = {who: (principal.source.kind, principal.source.name) for who, principal in principals.items()}
    assert sources["owner's key"] == ("user", "olga")
    assert sources["own agent's key"] == ("agent", agent.name)
    assert sources["system key"] == ("system", "system key")


def test_superusers_are_people(superuser: User, make_key, principals):
    access.require_superuser(Principal.of_user(superuser))
    access.require_superuser(Principal.of_key(make_key(superuser, "user").row))
    for who, sentence in (("system key", PERSON_REQUIRED), ("owner", "Access denied")):
        with pytest.raises(TrinityError) as refused:
            access.require_superuser(principals[who])
        assert refused.value.detail == sentence
