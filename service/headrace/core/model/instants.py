"""Days and instants of any year, as counts since 1970 (``reselect.md`` section 8.2)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

INFINITY_MICROS = 9223372036825200000  # Debezium's count for an infinite timestamp, in microseconds
NEGATIVE_INFINITY_MICROS = -9223372036832400000

_ZONED = re.compile(
    r"([+-]?\d{4,})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.](\d{1,9}))?)?"
    r"(?:Z|([+-])(\d\d)(?::?(\d\d)(?::(\d\d))?)?)",
    re.ASCII,
)
_INFINITIES = {"infinity": INFINITY_MICROS, "-infinity": NEGATIVE_INFINITY_MICROS}
_LARGEST_OFFSET = 18 * 3600  # of Java's ZoneOffset, in seconds


def iso_text(seconds: float, timespec: str = "seconds") -> str:
    """Return Unix time as ISO 8601 in UTC, as statuses, REST answers and properties of tables contain it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def zoned_micros(text: str) -> int:
    """Return microseconds since the epoch of an ISO instant of any year, or of ``infinity``. Raises ValueError."""
    if text in _INFINITIES:
        return _INFINITIES[text]
    match = _ZONED.fullmatch(text)
    if match is None:
        raise ValueError("not an ISO timestamp with a zone")
    year, month, day, hour, minute = (int(match[i]) for i in range(1, 6))
    second = int(match[6] or 0)
    if not (1 <= month <= 12 and 1 <= day <= days_in_month(year, month)):
        raise ValueError("the date is not in the calendar")
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("the time of day is out of range")
    seconds = days_from_civil(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
    if match[8]:
        hours, minutes, rest = int(match[9]), int(match[10] or 0), int(match[11] or 0)
        offset = hours * 3600 + minutes * 60 + rest
        if offset > _LARGEST_OFFSET or max(minutes, rest) > 59:
            raise ValueError("the offset of the time zone is out of range")
        seconds -= offset if match[8] == "+" else -offset
    micros = seconds * 1_000_000 + int((match[7] or "").ljust(6, "0")[:6])
    if not -(2**63) <= micros < 2**63:
        raise ValueError("the timestamp is out of range in microseconds")
    return micros


def days_in_month(year: int, month: int) -> int:
    begins = days_from_civil(year, month, 1)
    return days_from_civil(year + month // 12, month % 12 + 1, 1) - begins


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 in the proleptic Gregorian calendar, for any year (0 is 1 BC)."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468
