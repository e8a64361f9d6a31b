"""When a schedule comes due: pure functions of its timing and a moment. Nothing here looks at a clock.

An interval is counted from the schedule's start in real seconds, so it never drifts and knows no daylight saving time. A cron
goes by the clock on the wall of its time zone, as cron on Debian does where that clock is changed:

- minute and hour both fixed (`30 2 * * *`): once for each time of day. One that is skipped comes due in the first minute after
  the gap, one that comes twice the first time only.
- minute or hour beginning with `*` (`*/15 * * * *`): whenever the clock shows it. A skipped time is left out, one that comes
  twice is due twice.
"""

import functools
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

#: Beyond so many, due times that went by unseen are no longer counted one by one.
MOST_COUNTED = 1000
#: Five fields: a sixth would be seconds, finer than housekeeping looks.
FIELDS = 5
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
#: What it means differs from host to host.
_NO_PLACES = frozenset({"localtime", "Factory"})


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Either `cron` in `timezone`, or every `interval_seconds` from `anchor`."""

    cron: str
    interval_seconds: int | None
    timezone: str
    anchor: datetime


@dataclass(frozen=True, kw_only=True)
class Due:
    """The latest due time until now, how many before it went by (at most `MOST_COUNTED` are counted), and the one to come."""

    at: datetime
    skipped: int
    following: datetime | None


class Untimed(Exception):
    """The cron or the zone can't be read: the row was changed by hand, or the zone has left the database of zones."""


def next_due(*, timing: Timing, after: datetime) -> datetime | None:
    """The first due time later than `after`, in UTC; None where there is none (within 50 years). May raise `Untimed`."""
    if timing.interval_seconds is not None:
        return _next_of_interval(timing.anchor, timedelta(seconds=timing.interval_seconds), after)
    if not is_timezone(timing.timezone) or not is_cron(timing.cron):
        raise Untimed
    zone = zoneinfo.ZoneInfo(timing.timezone)
    return _next_shown(timing.cron, zone, after) if _follows_clock(timing.cron) else _next_once_a_day(timing.cron, zone, after)


def due_until(*, timing: Timing, first: datetime, now: datetime) -> Due:
    """What has come due until `now` since `first`, which was the next due time until then."""
    latest, skipped = first, 0
    while (following := next_due(timing=timing, after=latest)) is not None and following <= now:
        latest, skipped = following, skipped + 1
        if skipped == MOST_COUNTED:
            latest = _latest(timing, since=latest, now=now)
            following = next_due(timing=timing, after=now)
            break
    return Due(at=latest, skipped=skipped, following=following)


@functools.lru_cache
def is_cron(text: str) -> bool:
    """Whether `text` is a cron expression of five fields that comes due at all."""
    try:
        return len(text.split()) == FIELDS and next(CronSim(text, datetime(2000, 1, 1)), None) is not None  # noqa: DTZ001 - any day will do
    except CronSimError:
        return False


def is_timezone(name: str) -> bool:
    """Whether `name` is a zone of the IANA database. Never asked of the file system: names come from callers."""
    return name in _timezones()


@functools.cache
def _timezones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones()) - _NO_PLACES


def _next_of_interval(anchor: datetime, interval: timedelta, after: datetime) -> datetime:
    return anchor + max(1, (after - anchor) // interval + 1) * interval


def _follows_clock(cron: str) -> bool:
    minute, hour, *_ = cron.split()
    return minute.startswith("*") or hour.startswith("*")


def _next_once_a_day(cron: str, zone: zoneinfo.ZoneInfo, after: datetime) -> datetime | None:
    # Those of one gap come due together, and in a repeated hour the first ones lie behind: only what is later counts.
    moments = (due.astimezone(UTC) for due in CronSim(cron, after.astimezone(zone)))
    return next((due for due in moments if due > after), None)


def _next_shown(cron: str, zone: zoneinfo.ZoneInfo, after: datetime) -> datetime | None:
    """From one change of the clock to the next.

    CronSim counts on the wall's clock alone here: left to step over a change of half an hour itself (Lord Howe), it leaves
    out times that the clock does show.
    """
    start = after.astimezone(UTC).replace(microsecond=0)
    offset = _offset(zone, start)
    while (shown := next(CronSim(cron, (start + offset).replace(tzinfo=None)), None)) is not None:
        due = shown.replace(tzinfo=UTC) - offset
        changed = _first_change(zone, offset, since=start + _SECOND, until=due)
        if changed is None:
            return due
        start, offset = changed - _SECOND, _offset(zone, changed)
    return None


def _offset(zone: zoneinfo.ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _first_change(zone: zoneinfo.ZoneInfo, offset: timedelta, *, since: datetime, until: datetime) -> datetime | None:
    """The first second of the span that has another offset. No zone changes its clock and back within a day."""
    same, ahead = since - _SECOND, since
    while _offset(zone, ahead) == offset:
        if ahead >= until:
            return None
        same, ahead = ahead, min(ahead + _DAY, until)
    while ahead - same > _SECOND:
        middle = same + (ahead - same) // _SECOND // 2 * _SECOND
        same, ahead = (middle, ahead) if _offset(zone, middle) == offset else (same, middle)
    return ahead


def _latest(timing: Timing, *, since: datetime, now: datetime) -> datetime:
    """The last due time until `now`; `since` is one. By halves: between them there may be a year of minutes."""
    until = now
    while (following := next_due(timing=timing, after=since)) is not None and following <= now:
        middle = following + (until - following) / 2
        beyond = next_due(timing=timing, after=middle)
        since, until = (beyond, until) if beyond is not None and beyond <= now else (following, middle)
    return since
