"""Who reads a websocket, and whether they still may."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.models import Share
from fleet.principals import Principal
from fleet.selectors import agents_visible_to
from fleet.services import create_key
from frontend.readers import Reader, may_use_session, names_visible_to, still_reading


def reader(principal: Principal, session_key: str | None = None) -> Reader:
    return Reader(principal=principal, fingerprint=principal.user.get_session_auth_hash(), session_key=session_key)


def test_names_of_many_principals_come_in_one_query_and_are_those_of_each(
    owner, stranger, superuser, make_agent, django_assert_num_queries
):
    shared = make_agent(owner=stranger)
    make_agent(), make_agent(owner=stranger)
    Share.objects.create(agent=shared, user=owner)
    principals = [Principal.of_user(user) for user in (owner, stranger, superuser)]
    with django_assert_num_queries(1):
        found = names_visible_to(principals)
    assert found == {principal: frozenset(agents_visible_to(principal).values_list("name", flat=True)) for principal in principals}
    assert sorted(map(len, found.values())) == [2, 2, 3]


def test_nobody_sees_nothing_without_a_query(db, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert names_visible_to([]) == {}


def test_reader_is_dropped_when_signed_out_or_with_another_password_or_inactive(owner, stranger, superuser, agent):
    client = Client()
    client.force_login(owner)
    signed_in = reader(Principal.of_user(owner), client.session.session_key)
    others = [reader(Principal.of_user(stranger)), reader(Principal.of_user(superuser))]
    assert still_reading([signed_in, *others]) == {signed_in: {agent.name}, others[0]: set(), others[1]: {agent.name}}
    client.logout()
    stranger.set_password("new")
    stranger.save()
    User.objects.filter(pk=superuser.pk).update(is_active=False)
    assert still_reading([signed_in, *others]) == dict.fromkeys([signed_in, *others])


def test_reader_by_a_ticket_of_a_key_is_dropped_with_the_key(owner, agent):
    key = create_key(owner=owner, name="k", scope="user").row
    by_key = reader(Principal.of_key(key))
    assert still_reading([by_key]) == {by_key: {agent.name}}
    key.revoked_at = key.created_at
    key.save()
    assert still_reading([by_key]) == {by_key: None}


def test_reader_who_is_no_longer_a_superuser_sees_less(superuser, agent):
    above = reader(Principal.of_user(superuser))
    User.objects.filter(pk=superuser.pk).update(is_superuser=False)
    assert still_reading([above]) == {above: set()}


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("https://LOCALHOST", "localhost", True),
        ("http://localhost:8001", "localhost:8000", False),
        ("http://evil.example", "evil.example", False),
        ("null", "localhost", False),
        ("", "localhost", False),
        ("file://localhost", "localhost", False),
    ],
)
def test_session_is_for_pages_of_the_host_that_was_asked(origin, host, allowed):
    assert may_use_session(origin=origin, host=host) is allowed


def test_origins_of_the_setting_are_the_only_ones_where_it_is_set(settings):
    settings.TRINITY_WS_ORIGINS = ("https://app.example/",)
    assert may_use_session(origin="https://app.example", host="trinity.internal")
    assert not may_use_session(origin="http://localhost:8000", host="localhost:8000")
