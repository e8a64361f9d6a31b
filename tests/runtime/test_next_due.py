"""When schedules come due: pure, over both changes of the clock, in three zones."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.due_times import MOST_COUNTED, Due, Timing, due_until, is_cron, is_timezone, next_due

START = datetime(2026, 1, 1, tzinfo=UTC)


def cron(text, zone="UTC"):
    return Timing(cron=text, interval_seconds=None, timezone=zone, anchor=START)


def every(seconds, anchor=START):
    return Timing(cron="", interval_seconds=seconds, timezone="UTC", anchor=anchor)


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due_times(timing, *, after, count):
    found = []
    for _ in range(count):
        after = next_due(timing=timing, after=after)
        found.append(after)
    return found


def on_the_wall(moments, zone):
    """`"25 02:30"`, with a plus behind what is shown for the second time."""
    local = [moment.astimezone(ZoneInfo(zone)) for moment in moments]
    return [f"{moment:%d %H:%M}{'+' * moment.fold}" for moment in local]


#: Zone, cron, a moment before the change, and what the clock shows at the due times that follow.
CHANGES = {
    # Europe/Berlin: 2026-03-29 02:00 → 03:00, 2026-10-25 03:00 → 02:00
    "berlin spring, daily in the gap": ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00", ["29 03:00", "30 02:30", "31 02:30"]),
    "berlin spring, daily twice in the gap": ("Europe/Berlin", "0,30 2 * * *", "2026-03-28T12:00", ["29 03:00", "30 02:00", "30 02:30"]),
    "berlin spring, in the gap and at its end": ("Europe/Berlin", "0 2,3 * * *", "2026-03-28T12:00", ["29 03:00", "30 02:00", "30 03:00"]),
    "berlin spring, hourly": ("Europe/Berlin", "30 * * * *", "2026-03-29T00:00", ["29 01:30", "29 03:30", "29 04:30"]),
    "berlin spring, quarters": ("Europe/Berlin", "*/15 * * * *", "2026-03-29T00:31", ["29 01:45", "29 03:00", "29 03:15"]),
    "berlin spring, quarters of the gap": ("Europe/Berlin", "*/30 2 * * *", "2026-03-28T12:00", ["30 02:00", "30 02:30", "31 02:00"]),
    "berlin autumn, daily": ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00", ["25 02:30", "26 02:30", "27 02:30"]),
    "berlin autumn, made in the second pass": ("Europe/Berlin", "30 2 * * *", "2026-10-25T01:05", ["26 02:30", "27 02:30"]),
    "berlin autumn, hourly": ("Europe/Berlin", "30 * * * *", "2026-10-24T23:00", ["25 01:30", "25 02:30", "25 02:30+", "25 03:30"]),
    "berlin autumn, one day in the year": ("Europe/Berlin", "45 * 25 10 *", "2026-10-25T00:50", ["25 02:45+", "25 03:45"]),
    # America/New_York: 2026-03-08 02:00 → 03:00, 2026-11-01 02:00 → 01:00
    "new york spring, daily in the gap": ("America/New_York", "15 2 * * *", "2026-03-07T12:00", ["08 03:00", "09 02:15"]),
    "new york spring, hourly": ("America/New_York", "0 * * * *", "2026-03-08T05:30", ["08 01:00", "08 03:00", "08 04:00"]),
    "new york spring, on work days": ("America/New_York", "0 9 * * 1-5", "2026-03-06T15:00", ["09 09:00", "10 09:00"]),
    "new york autumn, daily": ("America/New_York", "30 1 * * *", "2026-10-31T12:00", ["01 01:30", "02 01:30"]),
    "new york autumn, half-hourly": (
        "America/New_York", "*/30 * * * *", "2026-11-01T04:45",
        ["01 01:00", "01 01:30", "01 01:00+", "01 01:30+", "01 02:00"],
    ),
    # Australia/Lord_Howe, half an hour: 2026-10-04 02:00 → 02:30, 2026-04-05 02:00 → 01:30
    "lord howe spring, daily in the gap": ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00", ["04 02:30", "05 02:15"]),
    "lord howe spring, daily behind the gap": ("Australia/Lord_Howe", "45 2 * * *", "2026-10-03T12:00", ["04 02:45", "05 02:45"]),
    "lord howe spring, hourly": ("Australia/Lord_Howe", "30 * * * *", "2026-10-03T14:45", ["04 01:30", "04 02:30", "04 03:30"]),
    "lord howe autumn, daily": ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00", ["05 01:45", "06 01:45"]),
    "lord howe autumn, daily before the pass": ("Australia/Lord_Howe", "15 1 * * *", "2026-04-04T12:00", ["05 01:15", "06 01:15"]),
    "lord howe autumn, hourly": ("Australia/Lord_Howe", "30 * * * *", "2026-04-04T13:45", ["05 01:30", "05 01:30+", "05 02:30"]),
    # Where the day begins at one o'clock.
    "cairo spring, at midnight": ("Africa/Cairo", "0 0 * * *", "2026-04-23T12:00", ["24 01:00", "25 00:00"]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_cron_goes_by_the_clock_on_the_wall(change):
    zone, text, after, shown = CHANGES[change]
    found = due_times(cron(text, zone), after=utc(after), count=len(shown))
    assert on_the_wall(found, zone) == shown
    assert found == sorted(set(found)), "each is later than the one before"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("text", ["* * * * *", "17 * * * *", "*/10 1-3 * * *", "30 1 * * *", "30 2 * * *", "10,50 1,2 * * *"])
def test_through_a_year_each_day_has_its_due_times(zone, text):
    """Against a clock that is looked at every minute of the day around each change."""
    place = ZoneInfo(zone)
    hours = [START + timedelta(hours=hour) for hour in range(24 * 365)]
    changes = [hour for hour in hours if hour.astimezone(place).utcoffset() != (hour + timedelta(hours=1)).astimezone(place).utcoffset()]
    assert len(changes) == 2
    for change in changes:
        begin, end = change - timedelta(hours=12), change + timedelta(hours=12)
        found, after = [], begin
        while (after := next_due(timing=cron(text, zone), after=after)) <= end:
            found.append(after)
        watched = [begin + timedelta(minutes=minute) for minute in range(1, 24 * 60 + 1)]
        shown = [moment for moment in watched if _matches(text, moment.astimezone(place))]
        if text[0] == "*" or text.split()[1] == "*":
            assert found == shown
        else:
            first = [moment for moment in shown if not moment.astimezone(place).fold]
            assert set(first) <= set(found)
            assert all(_just_behind_a_gap(moment, place) for moment in set(found) - set(first))


def _matches(text, local):
    minute, hour, *_ = text.split()
    return _in(minute, local.minute) and _in(hour, local.hour)


def _in(field, value):
    if "/" in field:
        return value % int(field.split("/")[1]) == 0
    if "-" in field:
        low, high = map(int, field.split("-"))
        return low <= value <= high
    return field == "*" or value in map(int, field.split(","))


def _just_behind_a_gap(moment, place):
    before = (moment - timedelta(minutes=1)).astimezone(place)
    return moment.astimezone(place).utcoffset() > before.utcoffset()


def test_an_interval_is_counted_from_its_start_and_never_drifts():
    anchor = utc("2026-03-28T23:59:58")
    times = due_times(every(7, anchor), after=anchor, count=3)
    assert times == [anchor + timedelta(seconds=seconds) for seconds in (7, 14, 21)]
    assert next_due(timing=every(7, anchor), after=anchor + timedelta(days=30, seconds=5, microseconds=1)) == (
        anchor + timedelta(seconds=7 * -(-(30 * 86_400 + 6) // 7))
    )
    assert next_due(timing=every(60, anchor), after=anchor - timedelta(days=1)) == anchor + timedelta(seconds=60)


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.integers(0, 999_999))
def test_an_interval_is_due_within_one_and_on_its_grid(seconds, behind, microseconds):
    after = START + timedelta(seconds=behind, microseconds=microseconds)
    due = next_due(timing=every(seconds), after=after)
    assert timedelta() < due - after <= timedelta(seconds=seconds)
    assert (due - START) % timedelta(seconds=seconds) == timedelta()


def test_it_is_later_than_the_moment_also_within_a_second():
    at = utc("2026-05-01T09:00")
    nine = cron("0 9 * * *")
    assert next_due(timing=nine, after=at - timedelta(microseconds=1)) == at
    assert next_due(timing=nine, after=at) == at + timedelta(days=1)
    assert next_due(timing=nine, after=at + timedelta(microseconds=1)) == at + timedelta(days=1)
    minutes = cron("* * * * *")
    assert next_due(timing=minutes, after=at - timedelta(microseconds=1)) == at
    assert next_due(timing=minutes, after=at) == at + timedelta(minutes=1)


def test_a_leap_day_is_found_years_ahead_in_any_zone():
    assert next_due(timing=cron("*/5 * 29 2 *", "Europe/Berlin"), after=START) == utc("2028-02-28T23:00")
    assert next_due(timing=cron("0 0 29 2 *", "Australia/Lord_Howe"), after=START) == utc("2028-02-28T13:00")


def test_of_what_went_by_the_latest_counts_and_the_others_are_told():
    minutes, first = cron("* * * * *"), utc("2026-05-01T09:00")
    due = due_until(timing=minutes, first=first, now=utc("2026-05-01T09:00:30"))
    assert due == Due(at=first, skipped=0, following=utc("2026-05-01T09:01"))
    due = due_until(timing=minutes, first=first, now=utc("2026-05-01T09:10:30"))
    assert due == Due(at=utc("2026-05-01T09:10"), skipped=10, following=utc("2026-05-01T09:11"))


@pytest.mark.parametrize(
    ("timing", "latest", "following"),
    [
        (cron("* * * * *"), "2026-05-20T11:17", "2026-05-20T11:18"),
        (cron("* * 1-9 * *"), "2026-05-09T23:59", "2026-06-01T00:00"),
        (every(40), "2026-05-20T11:17:20", "2026-05-20T11:18:00"),
    ],
)
def test_after_a_long_time_the_latest_is_found_without_counting_them_all(timing, latest, following):
    due = due_until(timing=timing, first=utc("2026-02-01T00:00"), now=utc("2026-05-20T11:17:30"))
    assert due == Due(at=utc(latest), skipped=MOST_COUNTED, following=utc(following))


@pytest.mark.parametrize(
    "text", ["* * * * *", "0 9 * * 1-5", "*/5 8-18 * * MON-FRI", "0 0 L * *", "0 0 * * 5#3", "0 0 29 2 *", " 0  9\t* * * "]
)
def test_what_is_a_cron(text):
    assert is_cron(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "0 9 * *", "0 9 * * * *", "60 * * * *", "* 24 * * *", "0 0 30 2 *", "0 0 31 4,6 *", "@daily", "every day", "*/0 * * * *",
        "5-1 * * * *", "²L * * * *", "0 0 * * ²L", "1,,2 * * * *", "\x00 * * * *", "-1 * * * *", "1.5 * * * *",
        f"{'9' * 95} * * *", "٣ * * * *",
    ],
)  # fmt: skip
def test_what_is_none(text):
    assert not is_cron(text)


@settings(deadline=None)  # 29 February on a Monday is far away
@given(st.text(alphabet="0123456789*/,-#LWMON \t²", max_size=40))
def test_any_text_is_one_or_none(text):
    if is_cron(text):
        assert next_due(timing=cron(text, "Europe/Berlin"), after=START) > START


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC", "America/New_York", "Australia/Lord_Howe", "Etc/GMT+5"])
def test_what_is_a_time_zone(name):
    assert is_timezone(name)


@pytest.mark.parametrize(
    "name", ["", "Europe", "../../etc/passwd", "/etc/localtime", "localtime", "Berlin", "europe/berlin\x00", "A" * 9000, "UTC+1"]
)
def test_what_is_no_time_zone(name):
    assert not is_timezone(name)
