"""Dates as numbers: elapsed time since the column's first value, and where in the day, week and year it is.

Forests keep rows as float32, which has 24 bits: seconds since 1970 would be rounded to two minutes. So
elapsed time is two columns: days with their fraction, which a tree can split at any time, and the seconds
within that day, which are exact to a hundredth even after a century.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any

DAY = 86_400_000_000
"""Microseconds of a day; every time here is in microseconds since 1970, UTC unless it says otherwise."""
_EPOCH = date(1970, 1, 1).toordinal()
_ZONE = r"\s*(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?"
_TIME = rf"(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d{{1,9}}))?)?{_ZONE})?"
_YEAR_FIRST = re.compile(
    rf"(?P<year>\d{{4}})(?P<mark>[-/])(?P<month>\d\d)(?P=mark)(?P<day>\d\d){_TIME}"
)
_DAY_FIRST = re.compile(rf"(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>\d{{4}}){_TIME}")
_TIME_LIKE = re.compile(
    r"(^|[._-])(ts|time|timestamp|date|datetime|when|at)([._-]|$)|(At|Time|Date)$"
)
_FROM, _TO = 946_684_800, 2_524_608_000  # 2000 to 2050, in seconds
_UNITS = (10**3, 10**6, 10**9)  # of a second


def parse(text: str) -> tuple[int, bool] | None:
    """The time that a text says, and whether it says a time of day; None if it is not a date.

    ISO 8601 (also with a blank for the T, or with slashes), and 31.12.2026.

    >>> parse("1970-01-02T00:00:01Z"), parse("1970-01-01 01:00+01:00"), parse("2.1.1970")
    ((86401000000, True), (0, True), (86400000000, False))
    >>> parse("2026-13-01"), parse("12/31/2026"), parse("2026")
    (None, None, None)
    """
    text = text.strip()
    found = _YEAR_FIRST.fullmatch(text) or _DAY_FIRST.fullmatch(text)
    if found is None:
        return None
    try:
        days = date(int(found["year"]), int(found["month"]), int(found["day"])).toordinal() - _EPOCH
    except ValueError:
        return None
    if found["hour"] is None:
        return days * DAY, False
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    if hour > 24 or minute > 59 or second > 60:
        return None
    part = int((found["part"] or "0").ljust(6, "0")[:6])
    zone = found["zone"]
    shift = 0
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        shift = int(digits[:2]) * 60 + int(digits[2:] or 0)
        shift = -shift if zone[0] == "-" else shift
    seconds = (hour * 60 + minute - shift) * 60 + second
    return days * DAY + seconds * 1_000_000 + part, True


def of_datetime(value: date) -> tuple[int, bool]:
    """The same of a date or a datetime; one without a time zone counts as UTC."""
    days = value.toordinal() - _EPOCH
    if not isinstance(value, datetime):
        return days * DAY, False
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    shift = value.utcoffset()
    micros = 0 if shift is None else (shift.days * 86_400 + shift.seconds) * 1_000_000
    return days * DAY + seconds * 1_000_000 + value.microsecond - micros, True


def of_number(value: Any) -> tuple[int, bool] | None:
    """The time in a number of seconds, milliseconds, microseconds or nanoseconds since 1970, by its size.

    >>> of_number(1_700_000_000) == of_number(1_700_000_000_000) == of_number(1.7e18)
    True
    """
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    if not math.isfinite(number) or abs(number) >= 1e20:
        return None
    exact = int(value) if isinstance(value, int | Decimal) else None
    size = abs(number)
    if size < 1e11:
        return round(number * 1e6), True
    whole = round(number) if exact is None else exact
    if size < 1e14:
        return whole * 1_000, True
    return (whole, True) if size < 1e17 else (whole // 1_000, True)


def is_time(name: str, value: float) -> bool:
    """Whether a number looks like a time since 1970: one between 2000 and 2050.

    Milliseconds and finer units are 13 digits and more, which few other numbers have in this range. For
    seconds the column's name must say so too.

    >>> is_time("a", 1_700_000_000_000), is_time("a", 1_700_000_000), is_time("sent_at", 1_700_000_000)
    (True, False, True)
    """
    if value != int(value):
        return _FROM <= value <= _TO and _TIME_LIKE.search(name) is not None
    if any(_FROM * unit <= value <= _TO * unit for unit in _UNITS):
        return True
    return _FROM <= value <= _TO and _TIME_LIKE.search(name) is not None


def names_of(name: str, with_time: bool) -> tuple[str, ...]:
    """The columns that a date becomes."""
    parts: tuple[str, ...] = ("days", "weekday_sin", "weekday_cos", "year_sin", "year_cos")
    if with_time:
        parts += ("seconds", "hour_sin", "hour_cos")
    return tuple(f"{name}.{part}" for part in parts)


def numbers_of(at: int, first: int, with_time: bool) -> tuple[float, ...]:
    """Their values. Nothing here depends on the machine's time zone.

    >>> numbers_of(DAY + 2_000_000, 0, True)[0], numbers_of(DAY + 2_000_000, 0, True)[5]
    (1.000023148148148, 2.0)
    """
    elapsed = at - first
    days, micros = divmod(at, DAY)
    share = micros / DAY
    weekday = 2 * math.pi * ((days + 3) % 7 + share) / 7  # 1970 began on a Thursday
    try:
        day = date.fromordinal(days + _EPOCH)
        year = 2 * math.pi * (day.timetuple().tm_yday - 1 + share) / 366
    except (ValueError, OverflowError):  # before the year 1, or after 9999
        year = 2 * math.pi * (days % 365.2425 + share) / 366
    values: tuple[float, ...] = (
        elapsed / DAY,
        math.sin(weekday),
        math.cos(weekday),
        math.sin(year),
        math.cos(year),
    )
    if with_time:
        hour = 2 * math.pi * share
        values += (elapsed % DAY / 1_000_000, math.sin(hour), math.cos(hour))
    return values
