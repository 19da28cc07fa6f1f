"""Java's ``SimpleDateFormat`` in UTC, and its regular expressions and replacements (``reselect.md`` section 3.3).

Both as far as Python has equivalents. Tests: ``tests/unit/transforms/test_values.py``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from headrace.core.connect.java_patterns import python_pattern
from headrace.transforms.record import unusable


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of Java's. Raises OnlyJava, or ``re.error`` for an invalid one."""
    return re.compile(python_pattern(pattern))


def replaced(pattern: re.Pattern[str], replacement: str, text: str) -> str | None:
    """Return ``text`` with the first match replaced, None if the pattern does not match the complete text.

    Java's routers do the same: ``matches()``, then ``replaceFirst()``, which searches again.
    """
    if pattern.fullmatch(text) is None:
        return None
    return pattern.sub(lambda match: _expanded(match, replacement), text, count=1)


def _expanded(match: re.Match[str], replacement: str) -> str:
    """Expand Java's replacement: ``$1``, ``${name}``, and a backslash before a literal character."""
    out, index = [], 0
    while index < len(replacement):
        letter = replacement[index]
        if letter == "\\" and index + 1 < len(replacement):
            out.append(replacement[index + 1])
            index += 2
        elif letter == "$":
            group, index = _group(match, replacement, index + 1)
            out.append(match[group] or "")
        else:
            out.append(letter)
            index += 1
    return "".join(out)


def _group(match: re.Match[str], replacement: str, index: int) -> tuple[int | str, int]:
    """Return the group at ``index`` and where it ends: digits count while such a group exists. Raises IndexError."""
    if replacement.startswith("{", index):
        end = replacement.index("}", index)
        return replacement[index + 1 : end], end + 1
    number, end = int(replacement[index]), index + 1
    while end < len(replacement) and replacement[end].isdigit():
        longer = number * 10 + int(replacement[end])
        if longer > match.re.groups:
            break
        number, end = longer, end + 1
    return number, end


def check_replacement(pattern: re.Pattern[str], replacement: str) -> str | None:
    """Return the problem of a replacement, or None."""
    try:
        references = re.findall(r"(?<!\\)\$(\d|\{[^}]*\})?", replacement)
        for reference in references:
            if not reference:
                return "Illegal group reference"
            if reference.isdigit() and int(reference) > pattern.groups:
                return f"No group {reference}"
            if not reference.isdigit() and reference[1:-1] not in pattern.groupindex:
                return f"No group with name {reference}"
    except ValueError:
        return "Illegal group reference"
    return None


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_LETTERS = frozenset("yMdHhkKmsSaEDXZz")
_ZONE = r"(?:Z|UTC|GMT|(?:GMT)?[+-]\d{2}(?::?\d{2})?)"


class DateFormat:
    """One pattern. Raises ValueError for an unknown letter."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._tokens = [_token(match) for match in _TOKEN.finditer(pattern)]
        unknown = {letters[0] for letters, literal in self._tokens if not literal} - _LETTERS
        if unknown or pattern.replace("''", "").count("'") % 2:
            raise ValueError(f"Illegal pattern character '{min(unknown)}'" if unknown else "Unterminated quote")
        self._parser: re.Pattern[str] | None = None

    def format(self, milliseconds: int) -> str:
        """Format milliseconds since 1970. Raises BadRecord for a time after the year 9999."""
        try:
            when = EPOCH + timedelta(milliseconds=milliseconds)
        except OverflowError as error:
            raise unusable("a timestamp is after the year 9999") from error
        return "".join(letters if literal else _text(letters, when) for letters, literal in self._tokens)

    def parse(self, text: str) -> int:
        """Parse a text to milliseconds since 1970. Raises BadRecord, without the text, if it does not match."""
        if self._parser is None:
            self._parser = re.compile("".join(self._part(i) for i in range(len(self._tokens))))
        match = self._parser.match(text)
        if match is None:
            raise unusable(f"Could not parse timestamp: value does not match pattern ({self.pattern})")
        return _time({letters: match[f"t{i}"] for i, (letters, literal) in enumerate(self._tokens) if not literal})

    def _part(self, index: int) -> str:
        letters, literal = self._tokens[index]
        if literal:
            return re.escape(letters)
        following = index + 1 < len(self._tokens) and not self._tokens[index + 1][1]
        return f"(?P<t{index}>{_pattern(letters, followed_by_digits=following)})"


def _token(match: re.Match[str]) -> tuple[str, bool]:
    """Return the letters of one field, or a literal text and True."""
    quoted = match[1]
    if quoted is not None:
        return (quoted.replace("''", "'") or "'"), True
    return match[0], match[2] is None


def _pattern(letters: str, *, followed_by_digits: bool) -> str:
    symbol = letters[0]
    if symbol in "XZz":
        return _ZONE
    if symbol == "a":
        return "[AaPp][Mm]"
    if symbol == "E":
        return "[A-Za-z]+"
    if symbol == "M" and len(letters) > 2:
        return "[A-Za-z]+"
    return rf"\d{{{len(letters)}}}" if followed_by_digits else r"-?\d+"


def _text(letters: str, when: datetime) -> str:
    symbol, width = letters[0], len(letters)
    if symbol == "y":
        return f"{when.year % 100:02}" if width == 2 else f"{when.year:0{width}}"
    if symbol == "M" and width > 2:
        name = _MONTHS[when.month - 1]
        return name[:3] if width == 3 else name
    if symbol == "E":
        name = _WEEKDAYS[when.weekday()]
        return name if width > 3 else name[:3]
    if symbol == "a":
        return "AM" if when.hour < 12 else "PM"
    if symbol in "XZz":
        return {"X": "Z", "Z": "+0000", "z": "UTC" if width < 4 else "Coordinated Universal Time"}[symbol]
    return f"{_number(symbol, when):0{width}}"


def _number(symbol: str, when: datetime) -> int:
    numbers = {
        "M": when.month,
        "d": when.day,
        "H": when.hour,
        "k": when.hour or 24,
        "K": when.hour % 12,
        "h": when.hour % 12 or 12,
        "m": when.minute,
        "s": when.second,
        "S": when.microsecond // 1000,
        "D": when.timetuple().tm_yday,
    }
    return numbers[symbol]


def _time(parts: dict[str, str]) -> int:
    """Return the time of the fields. Absent fields have their value of 1970; too large values carry over."""
    found = {letters[0]: (letters, text) for letters, text in parts.items()}
    numbers = {symbol: int(text) for symbol, (_, text) in found.items() if text.lstrip("-").isdigit()}
    year = numbers.get("y", 1970)
    if "y" in found and len(found["y"][0]) == 2 and len(found["y"][1]) == 2:
        year += 2000 if year < 46 else 1900
    month = numbers.get("M", 1) if "M" in numbers or "M" not in found else _month(found["M"][1])
    years, months = divmod(month - 1, 12)
    day = datetime(year + years, months + 1, 1, tzinfo=UTC)
    if "D" in numbers and "M" not in found:
        day += timedelta(days=numbers["D"] - 1)
    offset = next((_offset(text) for symbol, (_, text) in found.items() if symbol in "XZz"), timedelta())
    day += timedelta(
        days=numbers.get("d", 1) - 1,
        hours=_hour(numbers, found),
        minutes=numbers.get("m", 0),
        seconds=numbers.get("s", 0),
        milliseconds=numbers.get("S", 0),
    )
    return (day - offset - EPOCH) // timedelta(milliseconds=1)


def _hour(numbers: dict[str, int], found: dict[str, tuple[str, str]]) -> int:
    if "H" in numbers:
        return numbers["H"]
    if "k" in numbers:
        return numbers["k"] % 24
    hour = numbers["h"] % 12 if "h" in numbers else numbers.get("K", 0)
    return hour + 12 if "a" in found and found["a"][1].upper() == "PM" else hour


def _month(name: str) -> int:
    index = next((i for i, month in enumerate(_MONTHS) if month.lower().startswith(name.lower()[:3])), None)
    if index is None:
        raise unusable("Could not parse timestamp: unknown name of a month")
    return index + 1


def _offset(text: str) -> timedelta:
    digits = re.sub(r"[^0-9]", "", text)
    if not digits:
        return timedelta()
    span = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return -span if "-" in text else span
