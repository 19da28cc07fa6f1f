"""Java's ``SimpleDateFormat`` in UTC, and its regular expressions and replacements (``reselect.md`` section 3.3).

Both as far as Python has equivalents. Tests: ``tests/unit/transforms/test_values.py``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from headrace.core.connect.java_patterns import python_pattern
from headrace.transforms.record import unusable


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of Java's. Raises OnlyJava, or ``re.error`` for an invalid one."""
    return re.compile(python_pattern(pattern))


def replace_first(pattern: re.Pattern[str], replacement: str, text: str) -> str | None:
    """Return ``text`` with the first match replaced, None if the pattern does not match the complete text.

    Java's routers do the same: ``matches()``, then ``replaceFirst()``, which searches again.
    """
    if pattern.fullmatch(text) is None:
        return None

    def expand(match: re.Match[str]) -> str:  # $1, ${name}, and a backslash before a literal character
        parts, index = [], 0
        while index < len(replacement):
            letter = replacement[index]
            if letter == "\\" and index + 1 < len(replacement):
                parts.append(replacement[index + 1])
                index += 2
            elif letter == "$":
                group, index = _group(match, replacement, index + 1)
                parts.append(match[group] or "")
            else:
                parts.append(letter)
                index += 1
        return "".join(parts)

    return pattern.sub(expand, text, count=1)


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
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_LETTERS = frozenset("yMdHhkKmsSaEDXZz")
_ZONE = r"(?:Z|UTC|GMT|(?:GMT)?[+-]\d{2}(?::?\d{2})?)"

_TEXT_PATTERNS = {**dict.fromkeys("XZz", _ZONE), "a": "[AaPp][Mm]", "E": "[A-Za-z]+"}


class DateFormat:
    """One pattern. Raises ValueError for an unknown letter."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        # The letters of a field and False, or a literal text and True.
        self._tokens = [
            (match[0], match[2] is None) if match[1] is None else (match[1].replace("''", "'") or "'", True)
            for match in _TOKEN.finditer(pattern)
        ]
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
            parts, tokens = [], self._tokens
            for index, (letters, literal) in enumerate(tokens):
                if literal:
                    parts.append(re.escape(letters))
                    continue
                # A number ends at its width only where the digits of the next field follow at once, as in yyyyMMdd.
                fixed_width = index + 1 < len(tokens) and not tokens[index + 1][1]
                field = rf"\d{{{len(letters)}}}" if fixed_width else r"-?\d+"
                if letters[0] in _TEXT_PATTERNS:
                    field = _TEXT_PATTERNS[letters[0]]
                elif letters[0] == "M" and len(letters) > 2:
                    field = "[A-Za-z]+"
                parts.append(f"(?P<t{index}>{field})")
            self._parser = re.compile("".join(parts))
        match = self._parser.match(text)
        if match is None:
            raise unusable(f"Could not parse timestamp: value does not match pattern ({self.pattern})")
        return _time({letters: match[f"t{i}"] for i, (letters, literal) in enumerate(self._tokens) if not literal})


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
    return f"{numbers[symbol]:0{width}}"


def _time(parts: dict[str, str]) -> int:
    """Return the time of the fields. Absent fields have their value of 1970; too large values carry over."""
    fields = {letters[0]: (letters, text) for letters, text in parts.items()}
    numbers = {symbol: int(text) for symbol, (_, text) in fields.items() if text.lstrip("-").isdigit()}
    year = numbers.get("y", 1970)
    if "y" in fields and len(fields["y"][0]) == 2 and len(fields["y"][1]) == 2:
        year += 2000 if year < 46 else 1900
    month = numbers.get("M", 1)
    if "M" in fields and "M" not in numbers:
        prefix = fields["M"][1].lower()[:3]
        index = next((i for i, name in enumerate(_MONTHS) if name.lower().startswith(prefix)), None)
        if index is None:
            raise unusable("Could not parse timestamp: unknown name of a month")
        month = index + 1
    years, months = divmod(month - 1, 12)
    day = datetime(year + years, months + 1, 1, tzinfo=UTC)
    if "D" in numbers and "M" not in fields:
        day += timedelta(days=numbers["D"] - 1)
    if "H" in numbers:
        hour = numbers["H"]
    elif "k" in numbers:
        hour = numbers["k"] % 24
    else:
        hour = numbers["h"] % 12 if "h" in numbers else numbers.get("K", 0)
        hour += 12 if "a" in fields and fields["a"][1].upper() == "PM" else 0
    day += timedelta(
        days=numbers.get("d", 1) - 1,
        hours=hour,
        minutes=numbers.get("m", 0),
        seconds=numbers.get("s", 0),
        milliseconds=numbers.get("S", 0),
    )
    zone = next((text for symbol, (_, text) in fields.items() if symbol in "XZz"), "")
    if digits := re.sub(r"[^0-9]", "", zone):
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
        day -= -offset if "-" in zone else offset
    return (day - EPOCH) // timedelta(milliseconds=1)
