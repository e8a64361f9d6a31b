"""Query strings take the parameters they name, each of its type."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import RequestFactory

from core import api, errors

READERS = {
    "limit": api.integer(1, 200),
    "status": api.choices(["queued", "running"], repeat=True),
    "kind": api.choices(["a", "b"]),
    "since": api.moment(),
    "id": api.unique_id(),
    "name": api.text(max_length=5),
}


def read(query: str, allowed: Any = READERS) -> dict[str, Any]:
    return api.strict_query(RequestFactory().get(f"/api/x?{query}"), allowed)


def test_each_parameter_becomes_what_it_means():
    found = uuid.uuid4()
    assert read(f"limit=200&status=queued&status=running&kind=b&since=2030-01-31T14:00:00.5%2B02:00&id={found}&name=caf%C3%A9") == {
        "limit": 200,
        "status": ["queued", "running"],
        "kind": "b",
        "since": datetime(2030, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC),
        "id": found,
        "name": "café",
    }
    assert read("") == {}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("limit=0", "limit must be an integer between 1 and 200"),
        ("limit=201", "limit must be an integer between 1 and 200"),
        ("limit=5.0", "limit must be an integer between 1 and 200"),
        ("limit=%2B5", "limit must be an integer between 1 and 200"),
        ("limit=%D9%A5", "limit must be an integer between 1 and 200"),
        ("limit=" + "9" * 5000, "limit must be an integer between 1 and 200"),
        ("limit=", "limit must be an integer between 1 and 200"),
        ("limit=1&limit=2", "limit may be given only once"),
        ("status=queued&status=done", "status must be one of queued, running"),
        ("kind=A", "kind must be one of a, b"),
        ("since=2030-01-31T12:00:00", "since must be a time such as 2030-01-31T12:00:00Z"),
        ("since=0001-01-01T00:00:00%2B14:00", "since must be a time such as 2030-01-31T12:00:00Z"),
        ("since=2030-02-31T12:00:00Z", "since must be a time such as 2030-01-31T12:00:00Z"),
        ("id=12", "id must be a UUID"),
        ("id=%7B6ba7b811-9dad-11d1-80b4-00c04fd430c%7D", "id must be a UUID"),
        ("name=sixsix", "name must be text of at most 5 characters"),
        ("name=a%00", "name must be text of at most 5 characters"),
    ],
)
def test_another_value_is_refused(query, sentence):
    with pytest.raises(errors.Invalid) as refused:
        read(query)
    assert refused.value.detail == sentence


def test_an_unknown_parameter_is_refused_with_the_known_ones():
    with pytest.raises(errors.Invalid, match=r"Unknown query parameter 'page'; the valid ones are limit, cursor"):
        read("page=1", ["limit", "cursor"])
    with pytest.raises(errors.Invalid, match="Unknown query parameter 'page'; none are expected here"):
        read("page=1", {})
