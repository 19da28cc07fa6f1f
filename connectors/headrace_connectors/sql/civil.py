"""Days, clock times and fractions of a second as text, for any year: the common part of the databases' texts.

Python's ``datetime`` is not used, because its years are 1 to 9999.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.model.instants import days_from_civil

DAY_MICROS = 86_400_000_000
MONTH_MICROS = 2_629_800_000_000
"""365.25 / 12 days."""


@dataclass(frozen=True, slots=True)
class CivilDate:
    """A day in the proleptic Gregorian calendar; year 0 is 1 BC."""

    year: int
    month: int
    day: int

    @property
    def epoch_days(self) -> int:
        return days_from_civil(self.year, self.month, self.day)

    @property
    def iso(self) -> str:
        """Return ISO text; years above 9999 with a plus sign, as Java writes them."""
        sign = "-" if self.year < 0 else "+" if self.year > 9999 else ""
        return f"{sign}{abs(self.year):04d}-{self.month:02d}-{self.day:02d}"

    @staticmethod
    def from_epoch_days(days: int) -> CivilDate:
        """Return the day at ``days`` after 1970-01-01 (the inverse of ``days_from_civil``)."""
        era, day_of_era = divmod(days + 719468, 146097)
        year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
        day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
        month_index = (5 * day_of_year + 2) // 153
        month = month_index + 3 if month_index < 10 else month_index - 9
        day = day_of_year - (153 * month_index + 2) // 5 + 1
        return CivilDate(year_of_era + era * 400 + (month <= 2), month, day)


def fraction(micros: int, digits: int | None = None) -> str:
    """Format the fraction of a second with its point: exactly ``digits``, or as few digits as are exact."""
    if digits is None:
        return f".{micros % 1_000_000:06d}".rstrip("0").rstrip(".")
    return f".{micros % 1_000_000:06d}"[: digits + 1] if digits else ""


def clock(micros: int) -> str:
    seconds = micros // 1_000_000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
