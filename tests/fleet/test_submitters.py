"""Whether who submitted a task some time ago could do so now: the rule of `may`, for callers who aren't here any more."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.contrib.auth.models import User

from fleet import access, public_links
from fleet.models import Agent, Share
from fleet.principals import Principal, Submitter


def submitter(principal: Principal) -> Submitter:
    """As their executions remember them."""
    source, key = principal.source, principal.key
    return Submitter(kind=source.kind, name=source.name, user_id=principal.user.pk, key_id=None if key is None else key.pk, active=True)


def test_the_rule_is_that_of_callers_who_are_here(principals: dict[str, Principal], agent: Agent) -> None:
    assert {who: access.may_still_submit(submitter(one), agent) for who, one in principals.items()} == {
        who: access.may(one, access.Verb.SUBMIT, agent) for who, one in principals.items()
    }


def test_owners_cost_no_query(principals: dict[str, Principal], agent: Agent, django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        assert access.may_still_submit(submitter(principals["owner"]), agent)


@pytest.mark.parametrize("change", [{"active": False}, {"user_id": None}])
def test_who_was_shut_out_or_is_gone_may_nothing(change, principals: dict[str, Principal], agent: Agent) -> None:
    assert not any(access.may_still_submit(replace(submitter(one), **change), agent) for one in principals.values())


def test_a_key_that_is_gone_may_nothing_though_its_owner_may(principals: dict[str, Principal], agent: Agent) -> None:
    assert not access.may_still_submit(replace(submitter(principals["own agent's key"]), key_id=None), agent)


def test_a_share_that_was_taken_back_is_lost(principals: dict[str, Principal], agent: Agent, friend: User) -> None:
    assert access.may_still_submit(submitter(principals["friend"]), agent)
    Share.objects.all().delete()
    assert not access.may_still_submit(submitter(principals["friend"]), agent)


def test_a_system_key_goes_no_further_than_its_owner(principals: dict[str, Principal], agent: Agent) -> None:
    system = submitter(principals["system key"])
    assert access.may_still_submit(system, agent)
    User.objects.filter(pk=system.user_id).update(is_superuser=False)
    assert not access.may_still_submit(system, agent)


def test_a_public_link_goes_on_until_it_is_revoked(agent: Agent, make_agent: Callable[..., Agent], owner: User) -> None:
    link = public_links.create_link(principal=Principal.of_user(owner), agent=agent, name="site").row
    visitor = Submitter(kind="public", name="site", user_id=None, key_id=None, active=False, link_id=link.pk)
    assert access.may_still_submit(visitor, agent)
    assert not access.may_still_submit(visitor, make_agent())
    assert not access.may_still_submit(replace(visitor, link_id=None), agent)
    public_links.revoke_link(principal=Principal.of_user(owner), agent=agent, link_id=link.pk)
    assert not access.may_still_submit(visitor, agent)


def test_sources_with_rules_of_their_own_are_not_asked(agent: Agent) -> None:
    assert access.may_still_submit(Submitter(kind="approval", name="plan", user_id=None, key_id=None, active=False), agent)
