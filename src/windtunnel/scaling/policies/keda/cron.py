"""Cron schedules: whether one is active, from its start and end expressions.

The date and time at which a run begins are given; nothing here reads a clock.
"""

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from windtunnel.core.errors import InputError

ALLOWED: Final = "five fields (minute, hour, day of month, month, day of week), as in 30 9 * * 1-5"
FIELDS: Final = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("day of week", 0, 7),
)
MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
FREQUENT: Final = {
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIRST: Final = date(2020, 1, 1)
MOST_DAYS: Final = 366 * 8 + 1
"""Days within which every date occurs, including 29 February."""


class CronTimes:
    """The times of one cron expression, in a time zone."""

    def __init__(self, text: str, zone: tzinfo) -> None:
        words = FREQUENT.get(text.strip(), text).lower().split()
        if len(words) != len(FIELDS):
            raise InputError(f"{text!r} is not a cron expression", allowed=ALLOWED)
        found = [_values(word, *field, text) for word, field in zip(words, FIELDS, strict=True)]
        self._zone: Final = zone
        self._minutes, self._hours = sorted(found[0]), sorted(found[1])
        self._days, self._months = found[2], found[3]
        self._weekdays: Final = {day % 7 for day in found[4]}
        self._any_day: Final = words[2].startswith("*")
        self._any_weekday: Final = words[4].startswith("*")

        if not any(self._has(FIRST + timedelta(days=ahead)) for ahead in range(MOST_DAYS)):
            raise InputError(f"{text!r} is a day that never comes", allowed=ALLOWED)

    def next_after(self, at: datetime) -> datetime:
        """The first matching time after `at`."""
        first = at.astimezone(self._zone).date()
        for day in (first + timedelta(days=ahead) for ahead in range(MOST_DAYS)):
            if self._has(day) and (found := self._first_of(day, at)) is not None:
                return found
        raise AssertionError("every date comes within eight years")

    def _first_of(self, day: date, after: datetime) -> datetime | None:
        """The first matching time of a day; when clocks change, it may occur twice or never."""
        midnights = [datetime(d.year, d.month, d.day, tzinfo=self._zone)
                     for d in (day, day + timedelta(days=1))]  # fmt: skip
        changes = midnights[0].utcoffset() != midnights[1].utcoffset()
        later = (
            found
            for hour in self._hours
            for minute in self._minutes
            for fold in ((0, 1) if changes else (0,))
            if (found := self._in_utc(midnights[0].replace(hour=hour, minute=minute, fold=fold)))
            and found > after  # in UTC: two times of one zone compare as wall times
        )
        return min(later, default=None) if changes else next(later, None)

    def _in_utc(self, wall: datetime) -> datetime | None:
        found = wall.astimezone(UTC)
        same = found.astimezone(self._zone).replace(tzinfo=None) == wall.replace(tzinfo=None)
        return found if same else None

    def _has(self, day: date) -> bool:
        """Whether a day matches; with both a date and a weekday given, either is enough."""
        if day.month not in self._months:
            return False
        by_date, by_weekday = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        if self._any_day or self._any_weekday:
            return by_date and by_weekday
        return by_date or by_weekday


def _values(word: str, name: str, low: int, high: int, text: str) -> set[int]:
    """The numbers that a field matches, such as `1-5`, `*/15` or `mon,fri`."""
    names = {"month": MONTHS, "day of week": WEEKDAYS}.get(name, [])
    found: set[int] = set()
    for part in word.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            start = low if first in ("*", "?") else _number(first, names, low)
            end = _number(last, names, low) if dash else start
            if first in ("*", "?") or (step and not dash):
                end = high
            by = int(step or 1)
        except ValueError:
            by = start = end = 0
        if by < 1 or not low <= start <= end <= high:
            what = f"{text!r} is not a cron expression: its {name} is {word!r}"
            raise InputError(what, allowed=ALLOWED)
        found.update(range(start, end + 1, by))
    return found


def _number(word: str, names: list[str], low: int) -> int:
    return names.index(word) + low if word in names else int(word)


def zone_of(name: str) -> tzinfo:
    """The time zone of this name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        allowed = "a name of the IANA time zone database, such as Europe/Berlin or UTC"
        raise InputError(f"{name!r} is not a time zone known here", allowed=allowed) from None


def begin_of(text: str) -> datetime:
    """Parses the date and time at which a run begins; UTC if it has no offset."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        allowed = "such as 2026-11-16T08:00 or 2026-11-16T08:00+01:00"
        raise InputError(f"{text!r} is not a date and time", allowed=allowed) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


class CronSchedule:
    """A schedule that is active from each start to the next end."""

    def __init__(self, start: str, end: str, timezone: str, begins: datetime) -> None:
        zone = zone_of(timezone)
        self._start: Final = CronTimes(start, zone)
        self._end: Final = CronTimes(end, zone)
        self._begins: Final = begins
        self._is_on = False
        self._known_from_s = self._known_until_s = 0.0

    def is_on(self, now_s: float) -> bool:
        """Whether it is active: its next end comes before its next start."""
        if not self._known_from_s <= now_s < self._known_until_s:
            now = self._begins + timedelta(seconds=now_s)
            start, end = self._start.next_after(now), self._end.next_after(now)
            self._is_on = end < start
            self._known_from_s = now_s
            self._known_until_s = (min(start, end) - self._begins).total_seconds()
        return self._is_on
