"""Fields take their own type or refuse, with one sentence each."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from rest_framework.exceptions import ValidationError

from core import api, errors
from core.api.fields import parse_moment


class Form(api.StrictSerializer):
    number = api.IntegerField(min_value=1, max_value=10)
    flag = api.BooleanField(required=False)
    word = api.CharField(max_length=5, required=False)
    prose = api.CharField(blanks=False, required=False)
    note = api.CharField(allow_blank=True, allow_null=True, required=False)
    choice = api.ChoiceField(choices=["1", "b"], required=False)
    id = api.UUIDField(required=False)
    at = api.DateTimeField(required=False)
    names = api.ListField(child=api.CharField(max_length=3), max_length=2, required=False)
    data = api.ObjectField(max_bytes=20, required=False)


def refusal(**values: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        Form.check({"number": 1, **values})
    return next(api.problems.field_errors(refused.value.detail))["detail"]


def test_values_of_their_type_are_taken_as_they_are():
    found = uuid.uuid4()
    assert Form.check(
        {
            "number": 10,
            "flag": False,
            "word": " é  ",
            "prose": " a ",
            "note": "",
            "choice": "1",
            "id": str(found).upper(),
            "at": "2030-01-31T12:00:00Z",
            "names": ["a", "b"],
            "data": {"a": [None]},
        }
    ) == {
        "number": 10,
        "flag": False,
        "word": " é  ",
        "prose": " a ",
        "note": "",
        "choice": "1",
        "id": found,
        "at": datetime(2030, 1, 31, 12, tzinfo=UTC),
        "names": ["a", "b"],
        "data": {"a": [None]},
    }


def test_what_was_left_out_stays_out():
    assert Form.check({"number": 1, "note": None}) == {"number": 1, "note": None}


@pytest.mark.parametrize("value", [0, -1, 11, 3.5, 5.0, "5", True, False, {}, [], 10**400, -(10**400)])
def test_other_integers_are_refused(value):
    assert refusal(number=value) == "number must be an integer between 1 and 10"


def test_null_is_as_good_as_nothing_where_a_value_is_required():
    with pytest.raises(ValidationError) as refused:
        Form.check({})
    assert list(api.problems.field_errors(refused.value.detail)) == [
        {"pointer": "/number", "code": "required", "detail": "number is required"}
    ]
    assert refusal(number=None) == "number is required"
    assert refusal(flag=None) == "flag must be true or false"


@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("flag", [0, 1, "true", "on", [], None], "flag must be true or false"),
        ("word", [5, "", "sixsix", True, ["a"], {}, None], "word must be text of 1 to 5 characters"),
        ("word", ["a\0"], "word must not contain NUL characters"),
        ("word", ["\udc00"], "word must not contain lone surrogates"),
        ("prose", [" \t\n", "\u2003"], "prose must not be blank"),
        ("prose", [""], "prose must be text, not empty"),
        ("choice", [1, "a", "", "B", ["b"]], "choice must be one of 1, b"),
        ("id", [1, "", "x" * 36, uuid.uuid4().hex, f"{{{uuid.uuid4()}}}", f"urn:uuid:{uuid.uuid4()}"], "id must be a UUID"),
        ("at", [1, "", "2030-01-31", "2030-01-31T12:00:00", "yesterday"], "at must be a time such as 2030-01-31T12:00:00Z"),
        ("names", ["ab", {}, ["a", "b", "c"], 5], "names must be a list of 0 to 2 entries"),
        ("names", [["a", 1], ["four"]], "every entry of names must be text of 1 to 3 characters"),
        ("data", [[], "a", {"a": "x" * 20}, {"é": "é" * 8}], "data must be an object of at most 20 bytes"),
    ],
)
def test_other_values_are_refused(name, values, sentence):
    assert {refusal(**{name: value}) for value in values} == {sentence}


def test_unknown_fields_are_told_after_what_is_wrong_with_the_known_ones():
    with pytest.raises(ValidationError) as refused:
        Form.check({"nmber": 1, "flag": 1})
    details = [error["detail"] for error in api.problems.field_errors(refused.value.detail)]
    assert details[:2] == ["number is required", "flag must be true or false"]
    assert details[2].startswith("Unknown field 'nmber'; the valid fields are number, flag,")


def test_of_many_unknown_fields_the_first_are_told():
    with pytest.raises(ValidationError) as refused:
        Form.check({"number": 1} | {f"other{n}": n for n in range(100_000)})
    pointers = [error["pointer"] for error in api.problems.field_errors(refused.value.detail)]
    assert pointers == [f"/other{n}" for n in range(20)]


@pytest.mark.parametrize(
    ("spelt", "second", "microsecond"),
    [
        ("2030-01-31T12:00:00Z", 0, 0),
        ("2030-01-31t12:00:00z", 0, 0),
        ("2030-01-31 14:00:01+02:00", 1, 0),
        ("2030-01-31T00:01:00.5-11:59", 0, 500_000),
        ("2030-01-31T12:00:00.1234567891Z", 0, 123_456),
    ],
)
def test_a_moment_may_be_spelt_in_all_ways_of_rfc_3339(spelt, second, microsecond):
    assert parse_moment(spelt) == datetime(2030, 1, 31, 12, 0, second, microsecond, tzinfo=UTC)


@pytest.mark.parametrize(
    "spelt",
    [
        "2030-W05-4T12:00:00Z", "20300131T120000Z", "2030-01-31T12Z", "2030-01-31T12:00Z", "2030-01-31T12:00:00,5Z",
        "2030-01-31T12:00:00.Z", "2030-01-31T12:00:00+00:00:30", "2030-01-31T12:00:00+0200", "2030-01-31T12:00:00 Z",
        "2030-01-31T12:00:00Z\n", "2030-01-31x12:00:00Z", "2030-01-31T24:00:00Z", "2030-01-31T23:59:60Z", "2030-02-30T12:00:00Z",
        "\uff12\uff1030-01-31T12:00:00Z", "2030-01-31T12:00:00\u221205:00", "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00", "2030-01-31T12:00:00+24:00", "+002030-01-31T12:00:00Z",
    ],
)  # fmt: skip
def test_no_other_spelling_is_a_moment(spelt):
    assert parse_moment(spelt) is None


@pytest.mark.parametrize("body", [None, [], "a", 5, True])
def test_a_body_is_an_object(body):
    with pytest.raises(errors.InvalidBody):
        Form.check(body)


def test_bounds_can_be_set_on_an_instance():
    form = Form(data={"number": 9})
    form.fields["number"].max_value = 8
    assert not form.is_valid()
    assert str(form.errors["number"][0]) == "number must be an integer between 1 and 8"
    assert Form(data={"number": 9}).is_valid()
