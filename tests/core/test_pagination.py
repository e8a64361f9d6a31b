"""Lists come in pages that meet without a gap or an overlap."""

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.test import RequestFactory
from rest_framework.request import Request

from core import api, errors
from fleet.models import AuditEntry

ORDERING = ("-at", "-id")


def page(address: str, *, ordering: tuple[str, ...] = ORDERING) -> dict[str, Any]:
    request = Request(RequestFactory().get(address))
    return api.KeysetPagination.answer(AuditEntry.objects.all(), request, lambda row: row.pk, ordering=ordering).data


def walk(address: str, way: str, **kwargs: Any) -> list[list[int]]:
    pages = []
    while address:
        found = page(address, **kwargs)
        pages.append(found["results"])
        address = found[way]
        assert len(pages) < 100
    return pages


@pytest.fixture
def entries(db) -> Callable[..., list[int]]:
    def make(count: int, **columns: Any) -> list[int]:
        rows = AuditEntry.objects.bulk_create(AuditEntry(actor_name="x", action="y", **columns) for _ in range(count))
        return [row.pk for row in rows]

    return make


def test_pages_meet_forwards_and_backwards(entries):
    ids = entries(7)
    forwards = walk("/x?limit=3", "next")
    assert forwards == [ids[:3:-1], ids[3:0:-1], ids[:1]]
    last = page("/x?limit=3")["next"]
    last = page(last)["next"]
    backwards = walk(last, "previous")
    assert backwards == forwards[::-1]
    assert page("/x?limit=7")["next"] is None
    assert page("/x?limit=7")["previous"] is None


def test_rows_of_one_instant_are_all_listed_once(entries):
    """More of them than REST framework's own cursor can count past."""
    ids = entries(1100, at=datetime(2030, 1, 1, tzinfo=UTC))
    assert [row for rows in walk("/x?limit=200", "next") for row in rows] == ids[::-1]


def test_moments_stamped_by_the_database_and_by_us_mix(entries):
    entries(3)
    entries(3, at=datetime(2020, 1, 1, 0, 0, 0, 5000, tzinfo=UTC))
    entries(3, at=datetime(2020, 1, 1, tzinfo=UTC))
    listed = [row for rows in walk("/x?limit=2", "next") for row in rows]
    assert listed == list(AuditEntry.objects.order_by(*ORDERING).values_list("pk", flat=True))
    assert len(listed) == 9


def test_columns_may_run_in_different_directions(entries):
    for action in ("b", "a", "b"):
        AuditEntry.objects.create(actor_name="x", action=action)
    ordering = ("-action", "id")
    listed = [row for rows in walk("/x?limit=1", "next", ordering=ordering) for row in rows]
    assert listed == list(AuditEntry.objects.order_by(*ordering).values_list("pk", flat=True))


def test_a_row_that_is_gone_still_marks_its_place(entries):
    ids = entries(3, at=datetime(2030, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC))
    following = page("/x?limit=1")["next"]
    AuditEntry.objects.filter(pk=ids[2]).delete()
    assert page(following)["results"] == [ids[1]]


def test_rows_added_meanwhile_shift_nothing(entries):
    ids = entries(4)
    following = page("/x?limit=2")["next"]
    entries(5)
    assert page(following)["results"] == [ids[1], ids[0]]


@pytest.mark.parametrize("limit", ["0", "201", "x", "", "-1", "5.0"])
def test_a_limit_out_of_bounds_is_refused(limit, db):
    with pytest.raises(errors.Invalid, match="limit must be an integer between 1 and 200"):
        page(f"/x?limit={limit}")


@pytest.mark.parametrize(
    "cursor", ["", "x", "é", "cD0x", "cD1bXQ==", "cD1bIngiLCJ5Il0=", "cD1bMSwyXQ==", "cD1bIjIwMzAtMDEtMDEiXQ==", "cD1bIjk5OTkiLCIxIl0="]
)
def test_a_spoilt_cursor_is_refused(cursor, db):
    with pytest.raises(errors.Invalid, match="cursor is not one of this list"):
        page(f"/x?cursor={cursor}")


def cursor_of(*position: str) -> str:
    return quote(b64encode(urlencode({"p": json.dumps(position)}).encode()))


@pytest.mark.parametrize(
    "position",
    [
        ("0001-01-01 00:00:00+14:00", "1"),
        ("9999-12-31 23:59:59-14:00", "1"),
        ("2030-01-01 00:00:00", "1"),
        ("2030-01-01T00:00:00+00:00", "1"),
        ("2030-01-01 00:00:00+02:00", "1"),
        ("2030-01-01 00:00:00+00:00", "9" * 30),
        ("2030-01-01 00:00:00+00:00", "9" * 5000),
        ("2030-01-01 00:00:00+00:00", "1_0"),
        ("2030-01-01 00:00:00+00:00", " 1"),
        ("2030-01-01 00:00:00+00:00", "\u0661"),
    ],
)
def test_a_cursor_made_by_hand_is_refused(position, db):
    with pytest.raises(errors.Invalid, match="cursor is not one of this list"):
        page(f"/x?cursor={cursor_of(*position)}")


@pytest.mark.parametrize("text", ["\0", "\ud800", "x" * 101])
def test_a_cursor_holds_no_text_that_no_row_could_have(text, db):
    with pytest.raises(errors.Invalid, match="cursor is not one of this list"):
        page(f"/x?cursor={cursor_of(text, '1')}", ordering=("action", "id"))
